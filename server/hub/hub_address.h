// Where the hub is that the admin has set (--hub), the URLs of what it has, and
// which addresses it may lead to.
//
// URLs are taken apart by libcurl.  Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_HUB_HUB_ADDRESS_H_
#define ROUNDHOUSE_SERVER_HUB_HUB_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/spec/hub_cache.h"

namespace roundhouse {

// What decides whether two URLs are of one server.
struct UrlOrigin {
  std::string scheme;  // "https"
  std::string host;
  std::string port;  // always there: "443"
  bool operator==(const UrlOrigin&) const = default;

  // "https://hub.example:443".
  std::string Text() const;
};

// kInvalidArgument: it is no URL with a host, or one with a user's name.
absl::StatusOr<UrlOrigin> ParseOrigin(const std::string& url);

// Whether an address belongs to the internet at large: no loopback, no private,
// link-local or other special network.
// False for what is no address as text ("2001:db8::1").
bool IsPublicAddress(const std::string& address);

class HubAddress {
 public:
  // "https://HOST[:PORT][/PATH]"; "http://" for this machine's loopback alone,
  // since the hashes come the same way as the files.  kInvalidArgument says
  // what is wrong.
  static absl::StatusOr<HubAddress> Parse(const std::string& url);

  const UrlOrigin& origin() const { return origin_; }
  // It is http, which is on loopback.
  bool is_plain() const { return origin_.scheme == "http"; }

  // What answers with the commit and files of a model.
  std::string ListingUrl(const HubName& model) const;
  // One file of it, by its commit.
  std::string FileUrl(const std::string& id, const std::string& commit,
                      absl::string_view file) const;

  // Whether the hub may send the daemon on to `url`: to itself, or to whatever
  // speaks https; to an address of a private network only where its own URL has
  // one.  kFailedPrecondition names the server that it is not.
  absl::Status CheckRedirect(const std::string& url) const;

 private:
  std::string base_;  // without a slash at its end
  UrlOrigin origin_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_HUB_ADDRESS_H_
