// libcurl over loopback, against a server that answers what a test says.
#include "server/hub/curl_source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files/descriptor.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kTlsHandshake = 0x16;

// Answers one connection after the other: the i-th one with the i-th text, and
// then ends it.
class TextServer {
 public:
  TextServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
  }
  ~TextServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

  const std::string& url() const { return url_; }
  void Serve(std::vector<std::string> answers) {
    answers_ = std::move(answers);
    thread_ = std::thread([this] {
      for (const std::string& answer : answers_) {
        const Descriptor peer(accept(listener_.get(), nullptr, nullptr));
        if (peer.get() < 0) return;
        AnswerOne(peer.get(), answer);
      }
    });
  }
  std::vector<std::string> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  void AnswerOne(int fd, const std::string& answer) {
    std::string request;
    char piece[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(fd, piece, sizeof(piece), 0);
      if (got <= 0) break;
      request.append(piece, static_cast<size_t>(got));
      if (request[0] == kTlsHandshake) break;
    }
    {
      MutexLock lock(mutex_);
      requests_.push_back(request);
    }
    for (size_t at = 0; at < answer.size();) {
      const ssize_t sent =
          send(fd, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<size_t>(sent);
    }
    shutdown(fd, SHUT_WR);
    while (recv(fd, piece, sizeof(piece), 0) > 0) {
    }
  }

  const Descriptor listener_;
  std::string url_;
  std::vector<std::string> answers_;
  std::thread thread_;
  mutable Mutex mutex_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
};

std::string Answer(const std::string& status, const std::string& headers,
                   const std::string& body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\n", headers,
                      "Connection: close\r\n\r\n", body);
}

class CurlSourceTest : public testing::Test {
 protected:
  std::unique_ptr<WebSource> Source() {
    auto source = CurlSource::Create(
        *HubAddress::Parse(server_.url()),
        {.token = "s3cret", .is_public = is_public_, .stopped = [this] {
           return stopped_.load();
         }});
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  absl::StatusOr<WebHead> Get(const std::string& path, uint64_t from = 0) {
    body_.clear();
    const auto source = Source();
    return source->Get({.url = server_.url() + path, .from = from},
                       [this](const WebHead& head, absl::string_view data) {
                         heads_.push_back(head);
                         body_.append(data.data(), data.size());
                         return taken_;
                       });
  }

  TextServer server_;
  bool (*is_public_)(const std::string&) = IsPublicAddress;
  std::atomic<bool> stopped_ = false;
  absl::Status taken_;
  std::vector<WebHead> heads_;
  std::string body_;
};

TEST_F(CurlSourceTest, AWholeFile) {
  server_.Serve({Answer("200 OK", "Content-Length: 3\r\n", "abc")});
  const auto head = Get("/a%20b?blobs=true");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(body_, "abc");
  ASSERT_FALSE(heads_.empty());
  EXPECT_EQ(heads_[0].total, 3u);
  const std::string request = server_.requests().at(0);
  EXPECT_EQ(request.find("GET /a%20b?blobs=true HTTP/1.1\r\n"), 0u) << request;
  EXPECT_NE(request.find("Authorization: Bearer s3cret\r\n"),
            std::string::npos);
  EXPECT_EQ(request.find("Range:"), std::string::npos);
  EXPECT_EQ(request.find("Accept-Encoding"), std::string::npos);
}

TEST_F(CurlSourceTest, APartOfAFile) {
  server_.Serve(
      {Answer("206 Partial Content",
              "Content-Range: bytes 7-9/10\r\nContent-Length: "
              "3\r\n",
              "xyz"),
       Answer("206 Partial Content", "Content-Length: 3\r\n", "xyz")});
  const auto head = Get("/f", 7);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 206);
  EXPECT_EQ(heads_.at(0).begin, 7u);
  EXPECT_EQ(heads_.at(0).total, 10u);
  EXPECT_NE(server_.requests().at(0).find("Range: bytes=7-\r\n"),
            std::string::npos);
  const auto unsaid = Get("/f", 7);
  EXPECT_TRUE(absl::IsFailedPrecondition(unsaid.status())) << unsaid.status();
  EXPECT_EQ(body_, "");
}

TEST_F(CurlSourceTest, ACutConnectionIsUnavailable) {
  server_.Serve({Answer("200 OK", "Content-Length: 10\r\n", "abc")});
  const auto head = Get("/f");
  EXPECT_TRUE(absl::IsUnavailable(head.status())) << head.status();
  EXPECT_EQ(body_, "abc");
}

TEST_F(CurlSourceTest, NobodyThereIsUnavailable) {
  const std::string url = TextServer().url();
  const auto source = *CurlSource::Create(*HubAddress::Parse(url), {});
  const auto head = source->Get(
      {.url = url},
      [](const WebHead&, absl::string_view) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsUnavailable(head.status())) << head.status();
}

TEST_F(CurlSourceTest, AnErrorIsItsStatusAndItsBodyIsNoFile) {
  server_.Serve({Answer("429 Too Many",
                        "Retry-After: 17\r\nContent-Length: 4\r\n", "wait"),
                 Answer("500 Oh", "", std::string(1 << 20, 'x')),
                 Answer("404 No", "Content-Length: 0\r\n", "")});
  auto head = Get("/f");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 429);
  EXPECT_EQ(head->retry_after, absl::Seconds(17));
  head = Get("/f");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 500);
  EXPECT_EQ(Get("/f")->status, 404);
  EXPECT_EQ(body_, "");
  EXPECT_TRUE(heads_.empty());
}

TEST_F(CurlSourceTest, ARedirectOfItsOwnIsFollowedWithTheToken) {
  server_.Serve({Answer("302 Found", "Location: /other?x=1\r\n", "moved"),
                 Answer("200 OK", "Content-Length: 2\r\n", "ok")});
  const auto head = Get("/f", 0);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(body_, "ok");
  const std::vector<std::string> requests = server_.requests();
  EXPECT_EQ(requests.at(1).find("GET /other?x=1 "), 0u);
  EXPECT_NE(requests.at(1).find("s3cret"), std::string::npos);
}

TEST_F(CurlSourceTest, ARedirectToPlaintextElsewhereIsRefused) {
  TextServer other;
  other.Serve({Answer("200 OK", "", "evil")});
  server_.Serve({Answer(
      "307 Go", absl::StrCat("Location: ", other.url(), "/x?sig=1\r\n"), "")});
  const auto head = Get("/f");
  EXPECT_TRUE(absl::IsFailedPrecondition(head.status())) << head.status();
  EXPECT_NE(head.status().message().find(other.url()), std::string::npos);
  EXPECT_EQ(head.status().message().find("sig"), std::string::npos);
  EXPECT_TRUE(other.requests().empty());
}

// What listens there speaks no TLS, but is asked, and shown no token.
TEST_F(CurlSourceTest, ARedirectToHttpsIsTried) {
  TextServer other;
  other.Serve({"no TLS"});
  const std::vector<std::string> parts = absl::StrSplit(other.url(), "://");
  server_.Serve({Answer(
      "302 Found", absl::StrCat("Location: https://", parts[1], "/\r\n"), "")});
  const auto head = Get("/f");
  EXPECT_TRUE(absl::IsUnavailable(head.status())) << head.status();
  ASSERT_EQ(other.requests().size(), 1u);
  EXPECT_EQ(other.requests()[0].find("s3cret"), std::string::npos);
}

TEST_F(CurlSourceTest, APublicHubLeadsToNoPrivateNetwork) {
  // Nobody listens there.
  const std::string elsewhere =
      Answer("302 Found", "Location: https://127.0.0.2:1/x\r\n", "");
  server_.Serve({elsewhere, elsewhere, elsewhere});
  EXPECT_TRUE(absl::IsUnavailable(Get("/f").status()));
  is_public_ = [](const std::string& address) {
    return address == "127.0.0.1";
  };
  const auto head = Get("/f");
  EXPECT_TRUE(absl::IsFailedPrecondition(head.status())) << head.status();
  EXPECT_NE(head.status().message().find("https://127.0.0.2:1, which is in a "
                                         "private network"),
            std::string::npos)
      << head.status();
  is_public_ = [](const std::string&) { return true; };
  EXPECT_TRUE(absl::IsUnavailable(Get("/f").status()));
}

// A name that leads elsewhere on the second request leads to no private network
// either, and what was seen once is not forgotten.
TEST_F(CurlSourceTest, APublicHubStaysPublic) {
  const std::string ok = Answer("200 OK", "Content-Length: 2\r\n", "ok");
  server_.Serve({ok, ok, ok});
  static int asked = 0;
  asked = 0;
  is_public_ = [](const std::string&) { return asked++ == 0; };
  const auto source = Source();
  const auto get = [&] {
    return source->Get(
        {.url = server_.url()},
        [](const WebHead&, absl::string_view) { return absl::OkStatus(); });
  };
  EXPECT_TRUE(get().ok());
  for (int i = 0; i < 2; ++i) {
    const auto head = get();
    EXPECT_TRUE(absl::IsFailedPrecondition(head.status())) << head.status();
    EXPECT_NE(head.status().message().find("in a private network"),
              std::string::npos);
  }
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(CurlSourceTest, AnAnswerThatTakesTooLongIsUnavailable) {
  // Nobody accepts: the system's queue of connections does.
  const auto head = Source()->Get(
      {.url = server_.url(), .limit = absl::Milliseconds(20)},
      [](const WebHead&, absl::string_view) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsUnavailable(head.status())) << head.status();
}

TEST_F(CurlSourceTest, RedirectsEnd) {
  server_.Serve(std::vector<std::string>(
      20, Answer("302 Found", "Location: /again\r\n", "")));
  const auto head = Get("/f");
  EXPECT_TRUE(absl::IsFailedPrecondition(head.status())) << head.status();
  EXPECT_EQ(server_.requests().size(), kMaxRedirects + 1u);
}

TEST_F(CurlSourceTest, WhoTakesTheBytesEndsIt) {
  taken_ = absl::ResourceExhaustedError("disk");
  server_.Serve({Answer("200 OK", "", std::string(1 << 20, 'x'))});
  EXPECT_EQ(Get("/f").status(), taken_);
}

TEST_F(CurlSourceTest, WhoIsToldToStopStops) {
  stopped_ = true;
  server_.Serve({Answer("200 OK", "", "x")});
  EXPECT_TRUE(absl::IsCancelled(Get("/f").status()));
}

}  // namespace
}  // namespace roundhouse
