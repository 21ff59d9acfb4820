// The daemon's pages over HTTP: metrics and the status page.  Read only, and on
// the loopback only: there is no TLS, and at most one secret for everybody.
//
//   auto server = HttpServer::Start(
//       "127.0.0.1:9464",
//       {{"/metrics", [&] { return HttpAnswer{...}; }}});
//
// GET and HEAD; any other path is 404, and without the token everything is 401.
// A request for a host that is not the loopback's is refused: a page of a
// stranger's must not read this one through a name that it has given our
// address (DNS rebinding).
//
// Everybody on the machine can connect, so nobody is waited for: one thread
// serves all connections, each has a deadline for all of it, and one too many
// ends the oldest.  Whoever sends a request at once is
// answered, however many others send theirs slowly.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_
#define ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "server/observe/http_request.h"

namespace roundhouse {

struct HttpLimits {
  size_t connections = 64;
  // From the connection to the last byte of the answer.
  absl::Duration deadline = absl::Seconds(5);
};

struct HttpAnswer {
  int status = 200;  // or 503: not yet
  std::string content_type;
  std::string body;
  // Content-Security-Policy: what a browser may load and run for it.
  std::string policy = "default-src 'none'";
};

class HttpServer {
 public:
  // By path.  Called on the server's thread, one at a time.
  using Pages = std::map<std::string, std::function<HttpAnswer()>>;

  // "HOST:0" takes a free port, "" serves nothing.  `token`: who does not show
  // it, as HttpRequest::secret, is served nothing; "": nobody is asked.
  // kInvalidArgument for an address off the loopback or one that can't be
  // bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& listen, Pages pages, const std::string& token = "",
      const HttpLimits& limits = {});
  // Requests under way are cut off.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:9464"; "" when nothing is served.
  const std::string& address() const { return address_; }

 private:
  struct Connection {
    Descriptor socket;
    absl::Time deadline;
    std::string received;
    std::string answer;  // "": the request is not whole
    size_t sent = 0;
    bool lingers = false;  // answered; what the client still sends is dropped
  };

  HttpServer(Pages pages, const std::string& token, const HttpLimits& limits)
      : pages_(std::move(pages)), token_(token), limits_(limits) {}
  absl::Status Listen(const std::string& listen);
  void Loop();
  void Accept(absl::Time now);
  // False: the connection is over.
  bool Advance(Connection& connection);
  bool Receive(Connection& connection);
  bool Send(Connection& connection);
  bool MaySee(const HttpRequest& request) const;
  HttpAnswer Answer(const HttpRequest& request) const;
  std::string Respond(const std::string& received) const;

  const Pages pages_;
  const std::string token_;
  const HttpLimits limits_;
  std::string address_;
  Descriptor listener_;
  Descriptor wake_;  // eventfd
  std::atomic<bool> stop_ = false;
  // The thread's.
  std::list<Connection> connections_;  // oldest first
  absl::Time accept_again_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_HTTP_SERVER_H_
