// The front door's TLS port over loopback: the test is the client, with
// OpenSSL's own, and stands for gRPC.
#include "server/door/tls_entrance.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/manual_clock.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/door/front_door.h"
#include "server/tls/self_signed.h"

namespace roundhouse {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string& Settings() {
  static const auto& frame = *new std::string("\0\0\0\4\0\0\0\0\0", 9);
  return frame;
}
const std::string& Call() {
  static const auto& frame = *new std::string("\0\0\0\1\5\0\0\0\1", 9);
  return frame;
}

// A client; what it asks of TLS may be changed before Shake.
class Client {
 public:
  // `from`: the last byte of a loopback address.
  explicit Client(uint16_t port, uint32_t from = 1)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    struct sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
    connected_ = bind(socket_.get(), reinterpret_cast<struct sockaddr*>(&own),
                      sizeof(own)) == 0 &&
                 connect(socket_.get(), reinterpret_cast<struct sockaddr*>(&to),
                         sizeof(to)) == 0;
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_alpn_protos(context_.get(),
                            reinterpret_cast<const unsigned char*>("\2h2"), 3);
  }
  SSL_CTX* context() { return context_.get(); }
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }
  bool Shake() {
    connection_.reset(SSL_new(context_.get()));
    SSL_set_fd(connection_.get(), socket_.get());
    const bool done = SSL_connect(connection_.get()) == 1;
    ERR_clear_error();
    return done;
  }
  SSL* connection() { return connection_.get(); }
  void Send(const std::string& bytes) {
    size_t written = 0;
    ASSERT_EQ(
        SSL_write_ex(connection_.get(), bytes.data(), bytes.size(), &written),
        1);
    ASSERT_EQ(written, bytes.size());
  }
  std::string Receive(size_t bytes) {
    std::string out(bytes, '\0');
    size_t at = 0, n = 0;
    while (at < bytes && SSL_read_ex(connection_.get(), out.data() + at,
                                     bytes - at, &n) == 1) {
      at += n;
    }
    out.resize(at);
    return out;
  }
  // Whether the other side has closed, after what it may still say.
  bool IsOver() {
    char ignored[4096];
    ssize_t n = 0;
    while ((n = recv(socket_.get(), ignored, sizeof(ignored), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  const Descriptor socket_;
  bool connected_ = false;
  SslPtr connection_;
};

class TlsEntranceTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/rh_entrance.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    door_.reset();
    MutexLock lock(mutex_);
    for (const int fd : served_) close(fd);
    std::filesystem::remove_all(dir_);
  }
  void Open(const PeerLimits& limits = {}, const std::string& client_ca = "") {
    const auto own = EnsureSelfSigned(dir_, WallTime());
    ASSERT_TRUE(own.ok()) << own.status();
    auto context = TlsContext::Load(
        {.certificate = own->certificate,
         .key = own->key,
         .client_ca = client_ca.empty() ? "" : own->certificate});
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    peers_ = std::make_unique<Peers>(limits);
    auto door = FrontDoor::Listen(dir_ + "/s", peers_.get(), clock_);
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
    const absl::Status listens =
        door_->ListenTls({.host = "127.0.0.1", .port = 0}, context_.get());
    ASSERT_TRUE(listens.ok()) << listens;
    door_->Start([this](int fd) {
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      MutexLock lock(mutex_);
      served_.push_back(fd);
      came_.NotifyOne();
    });
  }
  std::unique_ptr<Client> NewClient(uint32_t from = 1) {
    return std::make_unique<Client>(door_->tls_address()->port, from);
  }
  int Served(size_t number) {
    MutexLock lock(mutex_);
    while (served_.size() <= number) came_.Wait(mutex_);
    return served_[number];
  }
  static std::string Receive(int fd, size_t bytes) {
    std::string out(bytes, '\0');
    size_t at = 0;
    while (at < bytes) {
      const ssize_t n = recv(fd, out.data() + at, bytes - at, 0);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    out.resize(at);
    return out;
  }
  static void Send(int fd, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n =
          send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      ASSERT_GT(n, 0) << strerror(errno);
      at += static_cast<size_t>(n);
    }
  }

  ManualClock clock_;
  std::string dir_;
  std::unique_ptr<TlsContext> context_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<FrontDoor> door_;
  Mutex mutex_;
  CondVar came_;
  std::vector<int> served_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(TlsEntranceTest, BytesPassBothWaysAndTheAddressIsKnown) {
  Open();
  const auto client = NewClient();
  ASSERT_TRUE(client->Shake());
  const int server = Served(0);
  const Peer peer = *peers_->PeerOf(absl::StrCat("fd:", server));
  EXPECT_FALSE(peer.uid.has_value());
  EXPECT_EQ(peer.address, "127.0.0.1");
  const std::string sent = kPreface + Settings() + Call();
  client->Send(sent);
  EXPECT_EQ(Receive(server, sent.size()), sent);
  Send(server, "an answer");
  EXPECT_EQ(client->Receive(9), "an answer");
}

TEST_F(TlsEntranceTest, MuchPassesBothWaysWhoeverIsSlow) {
  Open();
  const auto client = NewClient();
  ASSERT_TRUE(client->Shake());
  const int server = Served(0);
  // One DATA frame of 8 MiB, the last of its request.
  std::string up = kPreface + std::string("\x7f\0\0\0\1\0\0\0\1", 9);
  for (int i = 0; i < 0x7f0000; ++i) up.push_back(static_cast<char>(i * 7));
  std::string down(9'000'000, 'x');
  for (size_t i = 0; i < down.size(); ++i) down[i] = static_cast<char>(i * 13);
  std::thread answerer([&] { Send(server, down); });
  std::string received;
  std::thread reader([&] { received = Receive(server, up.size()); });
  // One thread at a time may use an OpenSSL connection.
  client->Send(up);
  EXPECT_EQ(client->Receive(down.size()) == down, true);
  reader.join();
  answerer.join();
  EXPECT_EQ(received == up, true);
}

TEST_F(TlsEntranceTest, EitherEndsTheConnection) {
  Open();
  const auto first = NewClient();
  ASSERT_TRUE(first->Shake());
  Send(Served(0), "goodbye");
  shutdown(Served(0), SHUT_RDWR);
  EXPECT_EQ(first->Receive(100), "goodbye");
  EXPECT_EQ(SSL_get_shutdown(first->connection()) & SSL_RECEIVED_SHUTDOWN,
            SSL_RECEIVED_SHUTDOWN)
      << "it is no cut connection";
  const auto second = NewClient();
  ASSERT_TRUE(second->Shake());
  const int server = Served(1);
  shutdown(second->fd(), SHUT_RDWR);
  EXPECT_EQ(Receive(server, 1), "");
}

TEST_F(TlsEntranceTest, VersionsThatAreSpoken) {
  Open();
  const struct {
    int version;
    bool spoken;
  } rows[] = {{TLS1_VERSION, false},
              {TLS1_1_VERSION, false},
              {TLS1_2_VERSION, true},
              {TLS1_3_VERSION, true}};
  for (const auto& row : rows) {
    const auto client = NewClient();
    SSL_CTX_set_min_proto_version(client->context(), row.version);
    SSL_CTX_set_max_proto_version(client->context(), row.version);
    EXPECT_EQ(client->Shake(), row.spoken) << row.version;
  }
}

TEST_F(TlsEntranceTest, CiphersOfTls12AreThoseWithAForgottenKeyAndAead) {
  Open();
  for (const char* cipher :
       {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305"}) {
    const auto client = NewClient();
    SSL_CTX_set_max_proto_version(client->context(), TLS1_2_VERSION);
    ASSERT_EQ(SSL_CTX_set_cipher_list(client->context(), cipher), 1);
    EXPECT_TRUE(client->Shake()) << cipher;
  }
  for (const char* cipher :
       {"ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA",
        "AES128-GCM-SHA256", "AES256-SHA", "DHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-CCM", "aNULL"}) {
    const auto client = NewClient();
    SSL_CTX_set_max_proto_version(client->context(), TLS1_2_VERSION);
    ASSERT_EQ(SSL_CTX_set_cipher_list(client->context(), cipher), 1) << cipher;
    EXPECT_FALSE(client->Shake()) << cipher;
  }
}

TEST_F(TlsEntranceTest, WhoDoesNotAskForHttp2IsCutOff) {
  Open();
  const auto other = NewClient();
  SSL_CTX_set_alpn_protos(other->context(),
                          reinterpret_cast<const unsigned char*>("\10http/1.1"),
                          9);
  EXPECT_FALSE(other->Shake());
  const auto none = NewClient();
  SSL_CTX_set_alpn_protos(none->context(), nullptr, 0);
  none->Shake();
  EXPECT_TRUE(none->IsOver());
  EXPECT_EQ(peers_->connections(), 0);
}

TEST_F(TlsEntranceTest, WhoDoesNotSpeakTlsIsCutOff) {
  Open();
  const auto plain = NewClient();
  Send(plain->fd(), kPreface + Settings());
  EXPECT_TRUE(plain->IsOver());
}

TEST_F(TlsEntranceTest, AHandshakeHasItsTime) {
  Open();
  const auto slow = NewClient();
  // The door has seen it when somebody who came later is in.
  const auto first = NewClient();
  ASSERT_TRUE(first->Shake());
  Served(0);
  clock_.Advance(kHandshakeLimit + absl::Seconds(2));
  const auto second = NewClient();
  ASSERT_TRUE(second->Shake());
  EXPECT_TRUE(slow->IsOver());
}

TEST_F(TlsEntranceTest, HandshakesOfAnAddressHaveANumber) {
  Open();
  std::vector<std::unique_ptr<Client>> silent;
  for (size_t i = 0; i < kMaxHandshakesEach; ++i) silent.push_back(NewClient());
  // One more is closed, and the others are not.
  EXPECT_TRUE(NewClient()->IsOver());
  EXPECT_TRUE(silent[0]->Shake());
  // A place is free again.
  EXPECT_TRUE(NewClient()->Shake());
}

TEST_F(TlsEntranceTest, SilentOnesShutNobodyOut) {
  Open();
  std::vector<std::unique_ptr<Client>> silent;
  for (size_t i = 0; i < kMaxHandshakes; ++i) {
    silent.push_back(NewClient(static_cast<uint32_t>(2 + i % 4)));
  }
  const auto other = NewClient(7);
  EXPECT_TRUE(other->Shake());
  EXPECT_TRUE(silent[0]->IsOver()) << "the oldest of those with the most";
  EXPECT_TRUE(silent[1]->Shake());
}

TEST_F(TlsEntranceTest, HandshakesOfAnAddressHaveARate) {
  Open({.address_handshakes = 2});
  EXPECT_TRUE(NewClient()->Shake());
  EXPECT_TRUE(NewClient()->Shake());
  EXPECT_FALSE(NewClient()->Shake());
  clock_.Advance(absl::Seconds(1));
  // The door may accept some more at the time that it saw last.
  bool shaken = false;
  for (int i = 0; i < 100 && !shaken; ++i) shaken = NewClient()->Shake();
  EXPECT_TRUE(shaken);
}

TEST_F(TlsEntranceTest, ConnectionsOfAnAddressHaveALimit) {
  Open({.connections_address = 1});
  const auto first = NewClient();
  ASSERT_TRUE(first->Shake());
  EXPECT_FALSE(NewClient()->Shake());
  EXPECT_EQ(peers_->connections(), 1);
}

// A flood over TLS meets what it meets on the Unix socket.
TEST_F(TlsEntranceTest, CallsOfAnAddressHaveARate) {
  Open({.user_calls = 4});
  const auto client = NewClient();
  ASSERT_TRUE(client->Shake());
  const int server = Served(0);
  std::string sent = kPreface;
  for (int i = 0; i < 8; ++i) sent += Call();
  client->Send(sent);
  const size_t four = 24 + 4 * Call().size();
  EXPECT_EQ(Receive(server, four).size(), four);
  Send(server, "x");
  EXPECT_EQ(client->Receive(1), "x");
  char none;
  EXPECT_LT(recv(server, &none, 1, MSG_DONTWAIT), 0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Receive(server, 4 * Call().size()).size(), 4 * Call().size());
}

TEST_F(TlsEntranceTest, WithAnAuthorityClientsNeedACertificateOfIt) {
  Open({}, "own");
  const auto without = NewClient();
  // In TLS 1.3 the refusal comes after the client is done.
  without->Shake();
  EXPECT_TRUE(without->IsOver());
  const auto with = NewClient();
  ASSERT_EQ(SSL_CTX_use_certificate_file(
                with->context(), (dir_ + "/tls/certificate.pem").c_str(),
                SSL_FILETYPE_PEM),
            1);
  ASSERT_EQ(
      SSL_CTX_use_PrivateKey_file(
          with->context(), (dir_ + "/tls/key.pem").c_str(), SSL_FILETYPE_PEM),
      1);
  ASSERT_TRUE(with->Shake());
  // The daemon's own certificate is for servers alone.
  EXPECT_TRUE(with->IsOver());
  EXPECT_EQ(peers_->connections(), 0);
}

TEST_F(TlsEntranceTest, AfterStopAcceptingNobodyIsServed) {
  Open();
  const auto half = NewClient();
  const auto first = NewClient();
  ASSERT_TRUE(first->Shake());
  Served(0);
  door_->StopAccepting();
  half->Shake();
  EXPECT_TRUE(half->IsOver());
  first->Send(std::string(kPreface) + Settings());
  EXPECT_EQ(Receive(Served(0), 33).size(), 33u) << "connections go on";
}

}  // namespace
}  // namespace roundhouse
