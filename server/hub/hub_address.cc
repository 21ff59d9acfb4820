#include "server/hub/hub_address.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxUrlBytes = 4096;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlPtr = std::unique_ptr<CURLU, FreeUrl>;

UrlPtr ParseUrl(const std::string& text) {
  UrlPtr url(curl_url());
  if (url == nullptr || text.size() > kMaxUrlBytes ||
      curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return nullptr;
  }
  return url;
}

// "" where the URL has no such part.
std::string PartOf(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

absl::Status NoUrl(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "want https://HOST, or http:// of this machine's loopback; ", why));
}

// IPv4, in the host's byte order.
struct Network {
  uint32_t address;
  int bits;
};
// Special-purpose networks (RFC 6890, multicast and reserved ones beside them).
constexpr Network kSpecial[] = {
    {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},
    {0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24},
    {0xc0a80000, 16}, {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24},
    {0xe0000000, 3}};

bool IsPublic4(uint32_t address) {
  return std::none_of(std::begin(kSpecial), std::end(kSpecial),
                      [address](const Network& network) {
                        const uint32_t mask = ~uint32_t{0}
                                              << (32 - network.bits);
                        return (address & mask) == network.address;
                      });
}

uint32_t Word(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// An address that holds another of IPv4 is as public as that one: mapped, by
// NAT64 or by 6to4.
bool IsPublic6(const in6_addr& address) {
  const uint8_t* const bytes = address.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address) || Word(bytes) == 0x0064ff9b) {
    return IsPublic4(Word(bytes + 12));
  }
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return IsPublic4(Word(bytes + 2));
  // Global unicast, but for Teredo and what documents use.
  const bool special = Word(bytes) == 0x20010000 || Word(bytes) == 0x20010db8;
  return (bytes[0] & 0xe0) == 0x20 && !special;
}

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> 24 == 127;
}

// Whether the name alone says that it is no server of the internet.  Others are
// looked up, and their addresses checked.
bool IsPrivateHost(const std::string& host) {
  absl::string_view name = host;
  absl::ConsumeSuffix(&name, ".");
  if (IsLoopbackHost(std::string(name)) || absl::EndsWith(name, ".localhost")) {
    return true;
  }
  if (absl::ConsumePrefix(&name, "[")) absl::ConsumeSuffix(&name, "]");
  const std::string address(name);
  in6_addr any;  // room for either
  const bool is_address = inet_pton(AF_INET, address.c_str(), &any) == 1 ||
                          inet_pton(AF_INET6, address.c_str(), &any) == 1;
  return is_address && !IsPublicAddress(address);
}

std::string Encoded(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || absl::StrContains("-_.~/", c)) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", byte);
    }
  }
  return out;
}

}  // namespace

std::string UrlOrigin::Text() const {
  return absl::StrCat(scheme, "://", host, ":", port);
}

absl::StatusOr<UrlOrigin> ParseOrigin(const std::string& url) {
  const UrlPtr parsed = ParseUrl(url);
  if (parsed == nullptr) return NoUrl("this is no URL");
  if (!PartOf(parsed.get(), CURLUPART_USER, 0).empty() ||
      !PartOf(parsed.get(), CURLUPART_PASSWORD, 0).empty()) {
    return NoUrl("no name and no password stands in it");
  }
  UrlOrigin origin = {
      .scheme = PartOf(parsed.get(), CURLUPART_SCHEME, 0),
      .host = absl::AsciiStrToLower(PartOf(parsed.get(), CURLUPART_HOST, 0)),
      .port = PartOf(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if (origin.host.empty()) return NoUrl("there is no host in it");
  return origin;
}

bool IsPublicAddress(const std::string& address) {
  in_addr four;
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) {
    return IsPublic4(ntohl(four.s_addr));
  }
  in6_addr six;
  return inet_pton(AF_INET6, address.c_str(), &six) == 1 && IsPublic6(six);
}

absl::StatusOr<HubAddress> HubAddress::Parse(const std::string& url) {
  HubAddress out;
  ASSIGN_OR_RETURN(out.origin_, ParseOrigin(url));
  const UrlPtr parsed = ParseUrl(url);
  if (!PartOf(parsed.get(), CURLUPART_QUERY, 0).empty() ||
      !PartOf(parsed.get(), CURLUPART_FRAGMENT, 0).empty()) {
    return NoUrl("neither '?' nor '#' stands in it");
  }
  const bool plain = out.origin_.scheme == "http";
  if (plain && !IsLoopbackHost(out.origin_.host)) {
    return NoUrl("whoever is on the way could change files and hashes alike");
  }
  if (!plain && out.origin_.scheme != "https") {
    return NoUrl("it is neither of them");
  }
  out.base_ =
      absl::StrCat(out.origin_.Text(), PartOf(parsed.get(), CURLUPART_PATH, 0));
  while (absl::EndsWith(out.base_, "/")) out.base_.pop_back();
  return out;
}

std::string HubAddress::ListingUrl(const HubName& model) const {
  const std::string revision = model.revision.empty() ? "main" : model.revision;
  return absl::StrCat(base_, "/api/models/", Encoded(model.id), "/revision/",
                      Encoded(revision), "?blobs=true");
}

std::string HubAddress::FileUrl(const std::string& id,
                                const std::string& commit,
                                absl::string_view file) const {
  return absl::StrCat(base_, "/", Encoded(id), "/resolve/", Encoded(commit),
                      "/", Encoded(file));
}

absl::Status HubAddress::CheckRedirect(const std::string& url) const {
  const absl::StatusOr<UrlOrigin> to = ParseOrigin(url);
  if (to.ok() && *to == origin_) return absl::OkStatus();
  if (to.ok() && to->scheme == "https") {
    if (!IsPrivateHost(to->host) || IsPrivateHost(origin_.host)) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("the hub leads to ", VisibleLine(to->Text()),
                     ", which is in a private network"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the hub leads to ", to.ok() ? VisibleLine(to->Text()) : "what is no URL",
      ", which is neither its own address nor https"));
}

}  // namespace roundhouse
