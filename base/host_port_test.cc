#include "base/host_port.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(HostPortTest, NamesAndAddresses) {
  const struct {
    const char* text;
    const char* host;
    int port;
    const char* again;
  } rows[] = {{"lab:7443", "lab", 7443, "lab:7443"},
              {"Lab.Example.ORG:1", "lab.example.org", 1, "lab.example.org:1"},
              {"127.0.0.1:0", "127.0.0.1", 0, "127.0.0.1:0"},
              {"[::1]:65535", "::1", 65535, "[::1]:65535"},
              {"[2001:DB8::0:1]:443", "2001:db8::1", 443, "[2001:db8::1]:443"}};
  for (const auto& row : rows) {
    const auto parsed = ParseHostPort(row.text);
    ASSERT_TRUE(parsed.ok()) << row.text << ": " << parsed.status();
    EXPECT_EQ(parsed->host, row.host);
    EXPECT_EQ(parsed->port, row.port);
    EXPECT_EQ(parsed->Text(), row.again);
    EXPECT_EQ(*ParseHostPort(parsed->Text()), *parsed);
  }
}

TEST(HostPortTest, WhatIsNone) {
  for (const std::string& bad :
       {std::string(""), std::string("lab"), std::string("lab:"),
        std::string(":7443"), std::string("lab:65536"), std::string("lab:-1"),
        std::string("lab:+1"), std::string("lab: 1"), std::string("lab:1x"),
        std::string("::1:7443"), std::string("[::1]"), std::string("[::1:7443"),
        std::string("[lab]:7443"), std::string("a b:1"), std::string("a\nb:1"),
        std::string("a\0b:1", 5), std::string("https://lab:1"),
        std::string("-lab:1"), std::string(300, 'a') + ":1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHostPort(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace roundhouse
