#include "server/observe/http_request.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(HttpRequestTest, WhatAHeadSays) {
  const auto request = ParseHttpRequest(
      "GET /status.json?t=1 HTTP/1.1\r\nhost: localhost:9464\r\n"
      "Accept-Encoding: br, gzip\r\nX-Other: a: b\r\n\r\nand a body");
  ASSERT_TRUE(request.ok() && request->has_value()) << request.status();
  EXPECT_EQ((*request)->method, "GET");
  EXPECT_EQ((*request)->path, "/status.json");
  EXPECT_EQ((*request)->host, "localhost:9464");
  EXPECT_TRUE((*request)->accepts_gzip);
  const auto bare = ParseHttpRequest("HEAD / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(bare.ok() && bare->has_value()) << bare.status();
  EXPECT_EQ((*bare)->host, "");
  EXPECT_FALSE((*bare)->accepts_gzip);
}

TEST(HttpRequestTest, WhatAuthorizationShows) {
  const auto shown = [](const std::string& credentials) {
    const auto request = ParseHttpRequest(absl::StrCat(
        "GET / HTTP/1.1\r\nAuthorization: ", credentials, "\r\n\r\n"));
    EXPECT_TRUE(request.ok() && request->has_value()) << credentials;
    return (*request)->secret;
  };
  EXPECT_EQ(shown("Bearer abc.d-e"), "abc.d-e");
  EXPECT_EQ(shown("bearer  abc "), "abc");
  EXPECT_EQ(shown("Basic YWRtaW46YTpi"), "a:b");  // admin:a:b
  EXPECT_EQ(shown("basic OmFi"), "ab");           // :ab
  for (const char* nothing : {"", "Bearer", "abc", "Digest abc", "Basic ***",
                              "Basic YWJj" /* no colon */}) {
    EXPECT_EQ(shown(nothing), "") << nothing;
  }
  EXPECT_FALSE(ParseHttpRequest("GET / HTTP/1.1\r\nAuthorization: Bearer a\r\n"
                                "Authorization: Bearer b\r\n\r\n")
                   .ok());
}

TEST(HttpRequestTest, EveryBeginningIsABeginning) {
  const std::string whole = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto part = ParseHttpRequest(whole.substr(0, bytes));
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_FALSE(part->has_value()) << bytes;
  }
}

TEST(HttpRequestTest, WhatIsNoHead) {
  for (const char* line :
       {"", "GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 x",
        "GET x HTTP/1.1", "GET / HTTP/2.0", "GET / http/1.1", "G\tT / HTTP/1.1",
        "GET /\x1b[31m HTTP/1.1", "GET /\x80 HTTP/1.1", " GET / HTTP/1.1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        ParseHttpRequest(absl::StrCat(line, "\r\n\r\n")).status()))
        << line;
  }
  for (const char* field : {"Host", "Host: ", ": x", " Host: localhost",
                            "Host : localhost", "Host: a\r\nHost: b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        ParseHttpRequest(absl::StrCat("GET / HTTP/1.1\r\n", field, "\r\n\r\n"))
            .status()))
        << field;
  }
}

TEST(HttpRequestTest, AHeadHasALimit) {
  const std::string begun = "GET / HTTP/1.1\r\nX: ";
  const std::string most(kMaxHttpHeadBytes - begun.size(), 'x');
  EXPECT_TRUE(ParseHttpRequest(begun + most).ok());
  EXPECT_TRUE(ParseHttpRequest(begun + most + "\r\n\r\n")->has_value());
  for (const char* end : {"", "\r\n\r\n"}) {
    EXPECT_TRUE(absl::IsResourceExhausted(
        ParseHttpRequest(absl::StrCat(begun, most, "x", end)).status()));
  }
}

}  // namespace
}  // namespace roundhouse
