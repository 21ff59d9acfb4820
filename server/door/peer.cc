#include "server/door/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

constexpr size_t kHostPartBytes = 8;  // of an IPv6 address

}  // namespace

Peer Peer::OfAddress(const std::string& address) {
  Peer peer;
  peer.address = address;
  return peer;
}

Peer Peer::OfAddress(const struct sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    struct sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return OfAddress(text);
  }
  struct sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return OfAddress(text);
  }
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return OfAddress("::1");
  std::memset(&v6.sin6_addr.s6_addr[kHostPartBytes], 0, kHostPartBytes);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return OfAddress(absl::StrCat(text, "/64"));
}

Peer Peer::OfHolder(const std::string& principal) {
  Peer peer;
  peer.address = principal;
  return peer;
}

std::string Peer::Text() const {
  return uid.has_value() ? absl::StrCat("user ", *uid)
                         : absl::StrCat("address ", address);
}

bool IsTrusted(uid_t uid) { return uid == 0 || uid == geteuid(); }

std::string PrincipalOf(uid_t uid) { return absl::StrCat("uid:", uid); }

}  // namespace roundhouse
