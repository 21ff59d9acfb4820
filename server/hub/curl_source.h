// WebSource by libcurl: TLS 1.2 or newer with the system's CAs, the proxies
// that the environment names (never for one of http), and redirects that
// HubAddress allows.
//
// The token goes to the hub's own origin alone.  A hub that was seen at a
// public address leads to no private one, and moves to none.  Where a proxy
// stands before the hub nobody here sees addresses: what the hub leads to goes
// through the proxy too, whatever NO_PROXY says, and the proxy's rules decide.
// Nothing of a URL's query is in a message.
//
// Thread-compatible: one for each pull; its connections stay open between
// requests.
#ifndef ROUNDHOUSE_SERVER_HUB_CURL_SOURCE_H_
#define ROUNDHOUSE_SERVER_HUB_CURL_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/hub/hub_address.h"
#include "server/hub/web_source.h"

namespace roundhouse {

inline constexpr int kMaxRedirects = 5;

struct CurlOptions {
  std::string token;  // "": none is shown
  absl::Duration connect_limit = absl::Seconds(20);
  // A transfer that brings less than this many bytes a second, on average over
  // the time, is broken.
  int64_t low_speed_bytes = 1024;
  absl::Duration low_speed_time = absl::Seconds(60);
  // Says it of an address as text; tests have loopback alone.
  bool (*is_public)(const std::string& address) = IsPublicAddress;
  // Asked about once a second; true ends what is under way with kCancelled.
  std::function<bool()> stopped = [] { return false; };
};

class CurlSource final : public WebSource {
 public:
  // kInternal: libcurl can't be set up.
  static absl::StatusOr<std::unique_ptr<WebSource>> Create(HubAddress hub,
                                                           CurlOptions options);
  ~CurlSource() override;

  absl::StatusOr<WebHead> Get(const WebRequest& request,
                              const WebSink& sink) override;

 private:
  struct Transfer;

  CurlSource(HubAddress hub, CurlOptions options, void* handle)
      : hub_(std::move(hub)), options_(std::move(options)), handle_(handle) {}

  absl::Status SetUp(Transfer& transfer, const WebRequest& request);
  // What the answer is, or why there is none; `code` is libcurl's.
  absl::StatusOr<WebHead> Outcome(const Transfer& transfer,
                                  const UrlOrigin& origin, int code) const;
  // What an answer of the hub's own shows of the way to it.
  void SeeHub();
  // One request; `next` becomes where it leads to, "" where it leads nowhere.
  absl::StatusOr<WebHead> GetOnce(const WebRequest& request,
                                  const WebSink& sink, std::string* next);

  const HubAddress hub_;
  const CurlOptions options_;
  void* const handle_;  // libcurl's
  // Once set they stay so.
  bool hub_is_public_ = false;
  bool hub_has_proxy_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_CURL_SOURCE_H_
