#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "zlib.h"

namespace roundhouse {
namespace {

const std::string& LongText() {
  static const std::string& text = *new std::string(100'000, 'x');
  return text;
}

std::unique_ptr<HttpServer> Start(const std::string& listen,
                                  const HttpLimits& limits = {},
                                  const std::string& token = "") {
  auto server = HttpServer::Start(
      listen,
      {{"/",
        [] {
          return HttpAnswer{.content_type = "text/html; charset=utf-8",
                            .body = "<p>home",
                            .policy = "default-src 'self'"};
        }},
       {"/long",
        [] {
          return HttpAnswer{.content_type = "text/plain", .body = LongText()};
        }},
       {"/not-yet",
        [] {
          return HttpAnswer{
              .status = 503, .content_type = "application/json", .body = "{}"};
        }}},
      token, limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

int Connect(const HttpServer& server) {
  const std::vector<std::string> parts = absl::StrSplit(server.address(), ':');
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts[1], &port));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&to), sizeof(to)),
            0);
  return fd;
}

// The whole answer to these bytes, over a plain socket.
std::string Send(const HttpServer& server, const std::string& request) {
  const int fd = Connect(server);
  EXPECT_EQ(write(fd, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, n);
  }
  close(fd);
  return all;
}

std::string Ask(const HttpServer& server, const std::string& path,
                const std::string& method = "GET",
                const std::string& headers = "Host: localhost\r\n") {
  return Send(server, absl::StrCat(method, " ", path, " HTTP/1.1\r\n", headers,
                                   "\r\n"));
}

std::string Body(const std::string& answer) {
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

void ExpectStatus(const std::string& answer, int status) {
  EXPECT_TRUE(absl::StartsWith(answer, absl::StrCat("HTTP/1.1 ", status, " ")))
      << answer;
}

TEST(HttpServerTest, AnswersWithItsHeaders) {
  const auto server = Start("127.0.0.1:0");
  const std::string answer = Ask(*server, "/");
  ExpectStatus(answer, 200);
  EXPECT_EQ(Body(answer), "<p>home");
  for (const char* header :
       {"Content-Type: text/html; charset=utf-8", "Content-Length: 7",
        "Cache-Control: no-store", "X-Content-Type-Options: nosniff",
        "Content-Security-Policy: default-src 'self'",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin"}) {
    EXPECT_TRUE(absl::StrContains(answer, absl::StrCat(header, "\r\n")))
        << header << "\n"
        << answer;
  }
  EXPECT_FALSE(absl::StrContains(answer, "Server:"));
  // A page that does not say what it needs gets nothing.
  EXPECT_TRUE(absl::StrContains(Ask(*server, "/long"),
                                "Content-Security-Policy: default-src 'none'"));
  EXPECT_EQ(Body(Ask(*server, "/?a=b")), "<p>home");
  ExpectStatus(Ask(*server, "/not-yet"), 503);
}

TEST(HttpServerTest, WithATokenNobodyElseIsServed) {
  const auto server = Start("127.0.0.1:0", {}, "the-token");
  const auto ask = [&server](const std::string& path,
                             const std::string& credentials) {
    return Ask(*server, path, "GET",
               absl::StrCat("Host: localhost\r\nAuthorization: ", credentials,
                            "\r\n"));
  };
  for (const char* path : {"/", "/long", "/x"}) {
    const std::string answer = Ask(*server, path);
    ExpectStatus(answer, 401);
    EXPECT_TRUE(absl::StrContains(
        answer, "WWW-Authenticate: Basic realm=\"Roundhouse\"\r\n"));
    for (const char* wrong : {"Bearer the-toke", "Bearer the-tokem",
                              "Bearer the-token2", "Basic dGhlLXRva2Vu"}) {
      ExpectStatus(ask(path, wrong), 401);
    }
  }
  EXPECT_EQ(Body(ask("/", "Bearer the-token")), "<p>home");
  // As browsers do: admin:the-token.
  EXPECT_EQ(Body(ask("/", "Basic YWRtaW46dGhlLXRva2Vu")), "<p>home");
  ExpectStatus(ask("/x", "Bearer the-token"), 404);
  // A stranger's page does not learn whether a token is right.
  ExpectStatus(Ask(*server, "/", "GET",
                   "Host: evil\r\nAuthorization: Bearer the-token\r\n"),
               403);
}

TEST(HttpServerTest, HeadHasNoBody) {
  const auto server = Start("127.0.0.1:0");
  const std::string answer = Ask(*server, "/long", "HEAD");
  ExpectStatus(answer, 200);
  EXPECT_TRUE(absl::StrContains(answer, "Content-Length: 100000\r\n"));
  EXPECT_EQ(Body(answer), "");
}

TEST(HttpServerTest, OtherPathsAndMethods) {
  const auto server = Start("127.0.0.1:0");
  for (const char* path : {"/x", "/long/", "/longer", "/../long/x",
                           "/%2e%2e/etc/passwd", "/etc/passwd"}) {
    const std::string answer = Ask(*server, path);
    ExpectStatus(answer, 404);
    EXPECT_EQ(Body(answer), "no such page\n") << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string answer = Ask(*server, "/", method);
    ExpectStatus(answer, 405);
    EXPECT_TRUE(absl::StrContains(answer, "Allow: GET, HEAD\r\n")) << answer;
    EXPECT_FALSE(absl::StrContains(answer, "home"));
  }
  for (const char* broken : {"GET\r\n\r\n", "\r\n\r\n", "GET / HTTP/9\r\n\r\n",
                             "NONSENSE / HTTP/1.1\r\n\r\n"}) {
    EXPECT_FALSE(absl::StrContains(Send(*server, broken), "home")) << broken;
  }
  ExpectStatus(Ask(*server, "/"), 200);
}

// A stranger's page in a browser here that has its name point to us.
TEST(HttpServerTest, OnlyNamesOfTheLoopback) {
  const auto server = Start("127.0.0.1:0");
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1",
                           "127.0.0.1:9464", "[::1]", "[::1]:1"}) {
    ExpectStatus(Ask(*server, "/", "GET", absl::StrCat("Host: ", host, "\r\n")),
                 200);
  }
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.x",
                           "localhost.evil.example", "[::2]", "::1"}) {
    const std::string answer =
        Ask(*server, "/", "GET", absl::StrCat("Host: ", host, "\r\n"));
    ExpectStatus(answer, 403);
    EXPECT_FALSE(absl::StrContains(answer, "home")) << host;
  }
}

TEST(HttpServerTest, CompressesWhatIsLong) {
  const auto server = Start("127.0.0.1:0");
  const std::string headers =
      "Host: localhost\r\nAccept-Encoding: br, gzip\r\n";
  const std::string answer = Ask(*server, "/long", "GET", headers);
  EXPECT_TRUE(absl::StrContains(answer, "Content-Encoding: gzip\r\n"));
  std::string body = Body(answer);
  EXPECT_LT(body.size(), 10'000u);
  std::string text(LongText().size() + 1, '\0');
  z_stream stream = {};
  ASSERT_EQ(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(body.data());
  stream.avail_in = static_cast<uInt>(body.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_EQ(text, LongText());
  EXPECT_EQ(Body(Ask(*server, "/", "GET", headers)), "<p>home");
}

TEST(HttpServerTest, ManyAtOnce) {
  const auto server = Start("localhost:0");
  ASSERT_TRUE(absl::StartsWith(server->address(), "127.0.0.1:"));
  std::vector<std::thread> clients;
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&server] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(Body(Ask(*server, "/long")), LongText());
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// Who sends a byte now and then is not waited for.
TEST(HttpServerTest, SlowOnesHoldUpNobody) {
  const auto server = Start("127.0.0.1:0");
  std::vector<int> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(Connect(*server));
    EXPECT_EQ(write(slow.back(), "G", 1), 1);
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(Body(Ask(*server, "/long")), LongText());
  char byte;
  EXPECT_LE(read(slow.front(), &byte, 1), 0) << "the oldest made room";
  // One that is new is served when it has said all.
  const int late = Connect(*server);
  for (const char c : std::string("GET / HTTP/1.1\r\n\r\n")) {
    EXPECT_EQ(write(late, &c, 1), 1);
  }
  EXPECT_EQ(read(late, &byte, 1), 1);
  for (const int fd : slow) close(fd);
  close(late);
}

TEST(HttpServerTest, ARequestHasADeadlineInAll) {
  const auto server =
      Start("127.0.0.1:0", {.deadline = absl::Milliseconds(50)});
  const int fd = Connect(*server);
  EXPECT_EQ(write(fd, "GET / HT", 8), 8);
  char byte;
  EXPECT_EQ(read(fd, &byte, 1), 0);
  close(fd);
}

TEST(HttpServerTest, WhatIsNoRequestIsRefused) {
  const auto server = Start("[::1]:0");
  EXPECT_TRUE(absl::StartsWith(server->address(), "[::1]:"));
  const auto other = Start("127.0.0.1:0");
  ExpectStatus(Send(*other, "GET / HTTP/9\r\n\r\n"), 400);
  ExpectStatus(Send(*other, "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x')),
               431);
  // A body that nobody asked for does not cost the answer.
  ExpectStatus(
      Send(*other, "POST / HTTP/1.1\r\n\r\n" + std::string(100'000, 'x')), 405);
}

TEST(HttpServerTest, OnlyTheLoopback) {
  for (const char* bad :
       {"0.0.0.0:9464", "9464", ":9464", "192.168.1.1:80", "127.0.0.1",
        "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:80,0.0.0.0:81"}) {
    const auto server = HttpServer::Start(bad, {});
    EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << bad;
    EXPECT_TRUE(absl::StrContains(std::string(server.status().message()), bad));
  }
}

TEST(HttpServerTest, APortThatIsTakenAndNoneAtAll) {
  const auto server = Start("127.0.0.1:0");
  const auto second = HttpServer::Start(server->address(), {});
  EXPECT_TRUE(absl::StrContains(std::string(second.status().message()),
                                "is the port taken?"))
      << second.status();
  EXPECT_EQ(Start("")->address(), "");
}

}  // namespace
}  // namespace roundhouse
