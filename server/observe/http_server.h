// The daemon's pages over HTTP: metrics and the status page.  Read only, and on
// the loopback only, since nobody is asked who he is.
//
//   auto server = HttpServer::Start(
//       "127.0.0.1:9464",
//       {{"/metrics", [&] { return HttpAnswer{...}; }}});
//
// GET and HEAD; any other path is 404.  A request for a host that is not the
// loopback's is refused: a page of a stranger's must not read this one through
// a name that it has given our address (DNS rebinding).  At most kHttpThreads
// requests at a time, each ended after kHttpPatience without progress.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_
#define ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct mg_connection;
struct mg_context;

namespace roundhouse {

// Browsers keep connections ready that ask for nothing until their time is up.
inline constexpr int kHttpThreads = 16;
inline constexpr absl::Duration kHttpPatience = absl::Seconds(5);

struct HttpAnswer {
  int status = 200;  // or 503: not yet
  std::string content_type;
  std::string body;
  // Content-Security-Policy: what a browser may load and run for it.
  std::string policy = "default-src 'none'";
};

class HttpServer {
 public:
  // By path.  Called on threads of the server's, several at once.
  using Pages = std::map<std::string, std::function<HttpAnswer()>>;

  // "HOST:0" takes a free port, "" serves nothing.  kInvalidArgument for an
  // address off the loopback or one that can't be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& listen, Pages pages);
  // Waits for the requests under way.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:9464"; "" when nothing is served.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(Pages pages) : pages_(std::move(pages)) {}
  absl::Status Listen(const std::string& listen);
  HttpAnswer Answer(mg_connection* connection) const;
  static int OnRequest(mg_connection* connection);

  const Pages pages_;
  std::string address_;
  mg_context* context_ = nullptr;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_
