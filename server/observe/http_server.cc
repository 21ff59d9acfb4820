#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "zlib.h"

namespace roundhouse {
namespace {

constexpr size_t kWorthCompressing = 1024;
constexpr int kBacklog = 128;
// Without descriptors nobody is accepted for so long.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

bool IsLoopback(absl::string_view host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

// "127.0.0.1:9464": the loopback only, since it has no TLS.
absl::Status CheckListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == std::string::npos || !IsLoopback(listen.substr(0, colon)) ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen: \"", listen,
                     "\" is not 127.0.0.1:PORT, localhost:PORT or [::1]:PORT"));
  }
  return absl::OkStatus();
}

// Any port is right: a forwarded one may be another.
bool NamesLoopback(absl::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != absl::string_view::npos &&
                        host.find(']', colon) == absl::string_view::npos;
  return IsLoopback(has_port ? host.substr(0, colon) : host);
}

HttpAnswer Refusal(int status, const char* text) {
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .body = absl::StrCat(text, "\n")};
}

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

// What an answer of this status says besides, for browsers among others.
const char* FieldsOf(int status) {
  switch (status) {
    case 401:
      return "WWW-Authenticate: Basic realm=\"Roundhouse\"\r\n";
    case 405:
      return "Allow: GET, HEAD\r\n";
    default:
      return "";
  }
}

// Speed counts more than size for a page that changes every second. Empty:
// compression failed.
std::string Gzipped(const std::string& text) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, MAX_MEM_LEVEL,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return "";
  }
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // only read
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(whole ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

// An address of the loopback and a port, as bind wants them.
struct Address {
  struct sockaddr_storage storage = {};
  socklen_t bytes = 0;
};

// REQUIRES: CheckListen took it.
Address AddressOf(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = 0;
  ROUNDHOUSE_CHECK(absl::SimpleAtoi(listen.substr(colon + 1), &port));
  Address out;
  if (absl::StartsWith(listen, "[::1]")) {
    auto* const v6 = reinterpret_cast<struct sockaddr_in6*>(&out.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    v6->sin6_addr = in6addr_loopback;
    out.bytes = sizeof(*v6);
  } else {
    auto* const v4 = reinterpret_cast<struct sockaddr_in*>(&out.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    out.bytes = sizeof(*v4);
  }
  return out;
}

// The port that a bound socket has.
int PortOf(int fd) {
  Address bound;
  bound.bytes = sizeof(bound.storage);
  if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&bound.storage),
                  &bound.bytes) != 0) {
    return 0;
  }
  // Both kinds have it at the same place.
  return ntohs(
      reinterpret_cast<const struct sockaddr_in*>(&bound.storage)->sin_port);
}

bool WouldBlock() { return errno == EAGAIN || errno == EINTR; }

std::string Bytes(HttpAnswer answer, const HttpRequest& request) {
  std::string encoding;
  if (answer.body.size() >= kWorthCompressing && request.accepts_gzip) {
    std::string compressed = Gzipped(answer.body);
    if (!compressed.empty()) {
      answer.body = std::move(compressed);
      encoding = "Content-Encoding: gzip\r\n";
    }
  }
  return absl::StrCat(
      "HTTP/1.1 ", answer.status, " ", StatusText(answer.status),
      "\r\nContent-Type: ", answer.content_type,
      "\r\nContent-Length: ", answer.body.size(), "\r\n", encoding,
      FieldsOf(answer.status),
      "Cache-Control: no-store\r\nContent-Security-Policy: ", answer.policy,
      "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer"
      "\r\nCross-Origin-Resource-Policy: same-origin"
      "\r\nVary: Accept-Encoding\r\nConnection: close\r\n\r\n",
      request.method == "HEAD" ? "" : answer.body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& listen, Pages pages, const std::string& token,
    const HttpLimits& limits) {
  std::unique_ptr<HttpServer> server(
      new HttpServer(std::move(pages), token, limits));
  if (!listen.empty()) RETURN_IF_ERROR(server->Listen(listen));
  return server;
}

HttpServer::~HttpServer() {
  stop_ = true;
  if (thread_.joinable()) {
    const uint64_t one = 1;
    ROUNDHOUSE_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
}

absl::Status HttpServer::Listen(const std::string& listen) {
  RETURN_IF_ERROR(CheckListen(listen));
  const Address address = AddressOf(listen);
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener_ = Descriptor(socket(address.storage.ss_family,
                                SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (wake_.get() < 0 || listener_.get() < 0 ||
      setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) !=
          0 ||
      bind(listener_.get(),
           reinterpret_cast<const struct sockaddr*>(&address.storage),
           address.bytes) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen: can't listen on ", listen, ": ",
                     strerror(errno), "; is the port taken?"));
  }
  // A name is an address from here on.
  const bool v6 = address.storage.ss_family == AF_INET6;
  address_ =
      absl::StrCat(v6 ? "[::1]" : "127.0.0.1", ":", PortOf(listener_.get()));
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void HttpServer::Loop() {
  while (!stop_) {
    const absl::Time before = WallTime();
    absl::Time until = absl::InfiniteFuture();
    std::vector<struct pollfd> polled = {{.fd = wake_.get(), .events = POLLIN}};
    const bool accepts = before >= accept_again_;
    if (!accepts) until = accept_again_;
    polled.push_back({.fd = accepts ? listener_.get() : -1, .events = POLLIN});
    for (const Connection& connection : connections_) {
      const bool sends = connection.sent < connection.answer.size();
      polled.push_back(
          {.fd = connection.socket.get(),
           .events = static_cast<short>(sends ? POLLOUT : POLLIN)});
      until = std::min(until, connection.deadline);
    }
    const int64_t left =
        until == absl::InfiniteFuture()
            ? -1
            : std::max<int64_t>(0,
                                absl::ToInt64Milliseconds(until - before) + 1);
    if (poll(polled.data(), polled.size(), static_cast<int>(left)) < 0) {
      continue;  // Interrupted.
    }
    const absl::Time now = WallTime();
    size_t at = 2;
    for (auto next = connections_.begin(); next != connections_.end(); ++at) {
      const auto connection = next++;
      const bool goes_on = (polled[at].revents == 0 || Advance(*connection)) &&
                           now < connection->deadline;
      if (goes_on) continue;
      connections_.erase(connection);
    }
    if (polled[1].revents != 0) Accept(now);
  }
}

void HttpServer::Accept(absl::Time now) {
  for (size_t i = 0; i < limits_.connections; ++i) {
    Descriptor client(accept4(listener_.get(), nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    const bool none = client.get() < 0;
    const bool few = none && (errno == EMFILE || errno == ENFILE ||
                              errno == ENOBUFS || errno == ENOMEM);
    if (none && !few) return;
    if (few) accept_again_ = now + kAcceptPause;
    if (few || connections_.size() >= limits_.connections) {
      if (!connections_.empty()) connections_.pop_front();
    }
    if (few) return;
    connections_.push_back(
        {.socket = std::move(client), .deadline = now + limits_.deadline});
    // Most requests are there already: they need not wait their turn.
    if (Advance(connections_.back())) continue;
    connections_.pop_back();
  }
}

bool HttpServer::Advance(Connection& connection) {
  if (connection.sent < connection.answer.size()) return Send(connection);
  if (!Receive(connection)) return false;
  return connection.answer.empty() || connection.lingers || Send(connection);
}

bool HttpServer::Receive(Connection& connection) {
  char buffer[4096];
  const ssize_t n = recv(connection.socket.get(), buffer, sizeof(buffer), 0);
  if (n < 0) return WouldBlock();
  if (n == 0) return false;
  if (connection.lingers) return true;
  connection.received.append(buffer, static_cast<size_t>(n));
  connection.answer = Respond(connection.received);
  return true;
}

bool HttpServer::Send(Connection& connection) {
  const ssize_t n =
      send(connection.socket.get(), connection.answer.data() + connection.sent,
           connection.answer.size() - connection.sent, MSG_NOSIGNAL);
  if (n < 0) return WouldBlock();
  connection.sent += static_cast<size_t>(n);
  if (connection.sent < connection.answer.size()) return true;
  // Closed at once, with bytes of the client's unread, it would lose the
  // answer.
  connection.lingers = true;
  return shutdown(connection.socket.get(), SHUT_WR) == 0;
}

// "" while the request is not whole.
std::string HttpServer::Respond(const std::string& received) const {
  const auto request = ParseHttpRequest(received);
  if (!request.ok()) {
    const bool long_head = absl::IsResourceExhausted(request.status());
    return Bytes(Refusal(long_head ? 431 : 400,
                         std::string(request.status().message()).c_str()),
                 {});
  }
  if (!request->has_value()) return "";
  return Bytes(Answer(**request), **request);
}

// How long it takes says nothing of the token but its length.
bool HttpServer::MaySee(const HttpRequest& request) const {
  return token_.empty() || (request.secret.size() == token_.size() &&
                            CRYPTO_memcmp(request.secret.data(), token_.data(),
                                          token_.size()) == 0);
}

HttpAnswer HttpServer::Answer(const HttpRequest& request) const {
  if (!request.host.empty() && !NamesLoopback(request.host)) {
    return Refusal(403, "ask for localhost or 127.0.0.1");
  }
  if (!MaySee(request)) {
    return Refusal(401,
                   "show the token of --metrics-token-file as a bearer, "
                   "or as a password with any name");
  }
  const auto page = pages_.find(request.path);
  if (page == pages_.end()) return Refusal(404, "no such page");
  if (request.method != "GET" && request.method != "HEAD") {
    return Refusal(405, "GET and HEAD only");
  }
  return page->second();
}

}  // namespace roundhouse
