#include "base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace roundhouse {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, "; want HOST:PORT, an IPv6 address in brackets as [::1]:7443"));
}

bool IsName(absl::string_view host) {
  return !host.empty() && host.size() <= kMaxHostBytes && host[0] != '-' &&
         host[0] != '.' && std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

std::string HostPort::Text() const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Bad("the port is missing");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  uint32_t port = 0;
  const bool all_digits =
      !digits.empty() && digits.size() <= 5 &&
      std::all_of(digits.begin(), digits.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      });
  if (!all_digits || !absl::SimpleAtoi(digits, &port) || port > UINT16_MAX) {
    return Bad("the port is no number up to 65535");
  }
  HostPort out{.port = static_cast<uint16_t>(port)};
  if (absl::ConsumePrefix(&host, "[")) {
    struct in6_addr address;
    if (!absl::ConsumeSuffix(&host, "]") ||
        inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) {
      return Bad("there is no IPv6 address in the brackets");
    }
    char canonical[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, &address, canonical, sizeof(canonical));
    out.host = canonical;
    return out;
  }
  if (!IsName(host)) return Bad("the host is no name or address");
  out.host = absl::AsciiStrToLower(host);
  return out;
}

}  // namespace roundhouse
