#include "server/observe/http_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status.h"
#include "civetweb.h"
#include "zlib.h"

namespace roundhouse {
namespace {

constexpr size_t kWorthCompressing = 1024;

bool IsLoopback(absl::string_view host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

// "127.0.0.1:9464": the loopback only, since it needs no token.
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

// Of any port: a forwarded one may be another.
bool NamesLoopback(absl::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != absl::string_view::npos &&
                        host.find(']', colon) == absl::string_view::npos;
  return IsLoopback(has_port ? host.substr(0, colon) : host);
}

absl::string_view Header(mg_connection* connection, const char* name) {
  const char* const value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
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
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// Of a page that changes every second speed counts more than size.  Empty:
// it could not be.
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

// What it cannot bind is told by Start; the rest is clients' doing.
int DropMessage(const mg_connection*, const char*) { return 1; }

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& listen, Pages pages) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(pages)));
  if (!listen.empty()) RETURN_IF_ERROR(server->Listen(listen));
  return server;
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  mg_stop(context_);
  mg_exit_library();
}

absl::Status HttpServer::Listen(const std::string& listen) {
  RETURN_IF_ERROR(CheckListen(listen));
  // civetweb knows no names.
  std::string bound = listen;
  if (absl::StartsWith(bound, "localhost:")) {
    bound = absl::StrCat("127.0.0.1", bound.substr(bound.rfind(':')));
  }
  const std::string threads = absl::StrCat(kHttpThreads);
  const std::string patience =
      absl::StrCat(absl::ToInt64Milliseconds(kHttpPatience));
  const char* options[] = {
      "listening_ports",    bound.c_str(),    "num_threads", threads.c_str(),
      "request_timeout_ms", patience.c_str(), nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = &HttpServer::OnRequest;
  callbacks.log_message = DropMessage;
  mg_init_library(0);
  context_ = mg_start(&callbacks, this, options);
  if (context_ == nullptr) {
    mg_exit_library();
    return absl::InvalidArgumentError(absl::StrCat(
        "--metrics-listen: can't listen on ", listen, "; is the port taken?"));
  }
  mg_server_port port = {};
  ROUNDHOUSE_CHECK(mg_get_server_ports(context_, 1, &port) == 1);
  address_ = absl::StrCat(bound.substr(0, bound.rfind(':')), ":", port.port);
  return absl::OkStatus();
}

HttpAnswer HttpServer::Answer(mg_connection* connection) const {
  const mg_request_info& request = *mg_get_request_info(connection);
  const absl::string_view method = request.request_method;
  const absl::string_view host = Header(connection, "Host");
  if (!host.empty() && !NamesLoopback(host)) {
    return Refusal(403, "ask for localhost or 127.0.0.1");
  }
  const auto page = request.local_uri == nullptr
                        ? pages_.end()
                        : pages_.find(request.local_uri);
  if (page == pages_.end()) return Refusal(404, "no such page");
  if (method != "GET" && method != "HEAD") {
    return Refusal(405, "GET and HEAD only");
  }
  return page->second();
}

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  HttpAnswer answer =
      static_cast<const HttpServer*>(request.user_data)->Answer(connection);
  std::string encoding;
  if (answer.body.size() >= kWorthCompressing &&
      absl::StrContains(Header(connection, "Accept-Encoding"), "gzip")) {
    std::string compressed = Gzipped(answer.body);
    if (!compressed.empty()) {
      answer.body = std::move(compressed);
      encoding = "Content-Encoding: gzip\r\n";
    }
  }
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", answer.status, " ", StatusText(answer.status),
      "\r\nContent-Type: ", answer.content_type,
      "\r\nContent-Length: ", answer.body.size(), "\r\n", encoding,
      answer.status == 405 ? "Allow: GET, HEAD\r\n" : "",
      "Cache-Control: no-store\r\nContent-Security-Policy: ", answer.policy,
      "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer"
      "\r\nCross-Origin-Resource-Policy: same-origin"
      "\r\nVary: Accept-Encoding\r\nConnection: close\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (absl::string_view(request.request_method) != "HEAD") {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
  return answer.status;
}

}  // namespace roundhouse
