#include "server/hub/hub_address.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

HubAddress Hub(const std::string& url) {
  const auto hub = HubAddress::Parse(url);
  EXPECT_TRUE(hub.ok()) << url << hub.status();
  return *hub;
}

TEST(HubAddressTest, UrlsOfWhatItHas) {
  const HubAddress hub = Hub("https://Hub.Example/mirror/");
  EXPECT_EQ(hub.ListingUrl({.id = "Org/Tiny-0.1"}),
            "https://hub.example:443/mirror/api/models/Org/Tiny-0.1/revision/"
            "main?blobs=true");
  EXPECT_EQ(hub.ListingUrl({.id = "a/b", .revision = "v1"}),
            "https://hub.example:443/mirror/api/models/a/b/revision/v1?"
            "blobs=true");
  EXPECT_EQ(hub.FileUrl("a/b", "12", "chat templates/x?#%\n.jinja"),
            "https://hub.example:443/mirror/a/b/resolve/12/"
            "chat%20templates/x%3F%23%25%0A.jinja");
}

TEST(HubAddressTest, PlaintextIsForLoopbackAlone) {
  for (const char* url : {"http://127.0.0.1:8080", "http://127.3.2.1",
                          "http://localhost:1", "http://[::1]:80"}) {
    EXPECT_TRUE(Hub(url).is_plain()) << url;
  }
  for (const char* url : {"http://hub.example", "http://10.0.0.1",
                          "http://localhost.hub.example", "http://[::2]"}) {
    const auto hub = HubAddress::Parse(url);
    ASSERT_FALSE(hub.ok()) << url;
    EXPECT_NE(hub.status().message().find("files and hashes alike"),
              std::string::npos)
        << hub.status();
  }
}

TEST(HubAddressTest, WhatIsNoAddressIsRefused) {
  for (const char* url :
       {"", "hub.example", "ftp://hub.example", "file:///etc", "https://",
        "https://anna:secret@hub.example", "https://hub.example/?x=1",
        "https://hub.example/#x", "https://hub.example:99999"}) {
    const auto hub = HubAddress::Parse(url);
    EXPECT_FALSE(hub.ok()) << url;
    EXPECT_EQ(hub.status().message().find("secret"), std::string::npos);
  }
}

TEST(HubAddressTest, ItLeadsToItselfAndToHttps) {
  const HubAddress hub = Hub("http://127.0.0.1:8080");
  EXPECT_TRUE(hub.CheckRedirect("http://127.0.0.1:8080/x").ok());
  EXPECT_TRUE(hub.CheckRedirect("https://files.example/x?signed=1").ok());
  for (const char* url :
       {"http://127.0.0.1:8081/x", "http://files.example/x", "ftp://a/b",
        "https://anna:x@files.example/", "gopher://x", "nothing"}) {
    const absl::Status status = hub.CheckRedirect(url);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << url << status;
  }
  EXPECT_FALSE(
      Hub("https://hub.example").CheckRedirect("http://hub.example/").ok());
}

TEST(HubAddressTest, APublicNameLeadsToNoPrivateAddress) {
  const HubAddress hub = Hub("https://hub.example");
  EXPECT_TRUE(hub.CheckRedirect("https://8.8.8.8/x").ok());
  EXPECT_TRUE(hub.CheckRedirect("https://[2606:4700::1]/x").ok());
  for (const char* url :
       {"https://10.0.0.1/x", "https://127.0.0.1:8443/", "https://127.1/",
        "https://0x7f000001/", "https://192.168.1.1./", "https://[::1]/",
        "https://[fd00::1]:443/", "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest", "https://localhost/",
        "https://LOCALHOST./", "https://a.localhost/"}) {
    const absl::Status status = hub.CheckRedirect(url);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << url << status;
    EXPECT_NE(status.message().find("which is in a private network"),
              std::string::npos)
        << status;
  }
  // A hub that is there itself may.
  for (const char* own : {"http://127.0.0.1:8080", "https://127.0.0.1:8443",
                          "https://10.0.0.1", "https://[fd00::1]"}) {
    EXPECT_TRUE(Hub(own).CheckRedirect("https://10.0.0.2/x").ok()) << own;
    EXPECT_TRUE(Hub(own).CheckRedirect(std::string(own) + "/x").ok()) << own;
  }
}

TEST(HubAddressTest, PublicAddresses) {
  for (const char* address :
       {"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.169.0.1",
        "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
        "2002:808:808::1"}) {
    EXPECT_TRUE(IsPublicAddress(std::string(address))) << address;
  }
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "127.0.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "198.18.0.1",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fe80::1",
                              "fd00::1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::127.0.0.1",
                              "2002:a00:1::1",
                              "2001:db8::1",
                              "2001:0:1::1",
                              "x",
                              ""}) {
    EXPECT_FALSE(IsPublicAddress(std::string(address))) << address;
  }
}

}  // namespace
}  // namespace roundhouse
