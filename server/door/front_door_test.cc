// Over real sockets; the test is the client and stands for gRPC.
#include "server/door/front_door.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/door/relay.h"

namespace roundhouse {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string& Call() {
  static const auto& frame = *new std::string("\0\0\0\1\5\0\0\0\1", 9);
  return frame;
}
const std::string& Reset() {
  static const auto& frame =
      *new std::string("\0\0\4\3\0\0\0\0\1\0\0\0\10", 13);
  return frame;
}
const std::string& Settings() {
  static const auto& frame = *new std::string("\0\0\0\4\0\0\0\0\0", 9);
  return frame;
}

void Send(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n =
        send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    ASSERT_GT(n, 0) << strerror(errno);
    at += static_cast<size_t>(n);
  }
}

// `bytes` of them, or what came before the end.
std::string Receive(int fd, size_t bytes) {
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

class FrontDoorTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_door.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    path_ = dir_ / "s";
  }
  void TearDown() override {
    door_.reset();
    for (const int fd : clients_) close(fd);
    MutexLock lock(mutex_);
    for (const int fd : served_) close(fd);
    std::filesystem::remove_all(dir_);
  }
  void Open(const PeerLimits& limits = {}) {
    peers_ = std::make_unique<Peers>(limits);
    auto door = FrontDoor::Listen(path_, peers_.get(), clock_);
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
    door_->Start([this](int fd) {
      // gRPC's reads and writes never block; the test's do.
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      MutexLock lock(mutex_);
      served_.push_back(fd);
      came_.NotifyOne();
    });
  }
  int Socket() {
    clients_.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return clients_.back();
  }
  int Connect(int fd) {
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&address),
                      sizeof(address)),
              0)
        << strerror(errno);
    return fd;
  }
  int Connect() { return Connect(Socket()); }
  // Eight of the frames: four go on at once, the rest as time passes.
  void ExpectFourASecond(const std::string& frame) {
    const int client = Connect();
    const int server = Served(0);
    std::string sent = kPreface;
    for (int i = 0; i < 4; ++i) sent += frame;
    Send(client, sent + frame + frame + frame + frame);
    EXPECT_EQ(Receive(server, sent.size()), sent);
    for (const int more : {1, 3}) {
      // What goes the other way comes after what was read before it.
      Send(server, "x");
      EXPECT_EQ(Receive(client, 1), "x");
      char none;
      EXPECT_LT(recv(server, &none, 1, MSG_DONTWAIT), 0) << more << " left";
      clock_.Advance(more * absl::Milliseconds(250));
      EXPECT_EQ(Receive(server, more * frame.size()).size(),
                more * frame.size());
    }
  }
  // What gRPC was given as its `number`th connection.
  int Served(size_t number) {
    MutexLock lock(mutex_);
    while (served_.size() <= number) came_.Wait(mutex_);
    return served_[number];
  }

  // Whatever waits for time waits until it is advanced.
  ManualClock clock_;
  std::filesystem::path dir_;
  std::string path_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<FrontDoor> door_;
  std::vector<int> clients_;
  Mutex mutex_;
  CondVar came_;
  std::vector<int> served_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(FrontDoorTest, BytesPassBothWaysAndTheCallerIsKnown) {
  Open();
  const int client = Connect();
  const int server = Served(0);
  EXPECT_EQ(*peers_->PeerOf(absl::StrCat("fd:", server)), geteuid());
  const std::string sent = kPreface + Settings() + Call();
  Send(client, sent);
  EXPECT_EQ(Receive(server, sent.size()), sent);
  Send(server, "an answer");
  EXPECT_EQ(Receive(client, 9), "an answer");
  EXPECT_EQ(peers_->connections(), 1);
}

TEST_F(FrontDoorTest, MuchPassesBothWaysWhoeverIsSlow) {
  Open();
  const int client = Connect();
  const int server = Served(0);
  // One DATA frame of 8 MiB, the last of its request.
  std::string up = kPreface + std::string("\x7f\0\0\0\1\0\0\0\1", 9);
  for (int i = 0; i < 0x7f0000; ++i) up.push_back(static_cast<char>(i * 7));
  std::string down(9'000'000, 'x');
  for (size_t i = 0; i < down.size(); ++i) down[i] = static_cast<char>(i * 13);
  std::thread sender([&] { Send(client, up); });
  std::thread answerer([&] { Send(server, down); });
  // Nobody reads before both have filled what lies between.
  EXPECT_EQ(Receive(server, up.size()) == up, true);
  EXPECT_EQ(Receive(client, down.size()) == down, true);
  sender.join();
  answerer.join();
}

TEST_F(FrontDoorTest, EitherEndsTheConnection) {
  Open();
  const int first = Connect();
  const int first_server = Served(0);
  Send(first_server, "goodbye");
  shutdown(first_server, SHUT_RDWR);
  EXPECT_EQ(Receive(first, 100), "goodbye") << "its last words are delivered";
  const int second = Connect();
  const int second_server = Served(1);
  shutdown(second, SHUT_RDWR);
  EXPECT_EQ(Receive(second_server, 1), "");
  EXPECT_FALSE(peers_->PeerOf(absl::StrCat("fd:", second_server)).ok());
}

TEST_F(FrontDoorTest, AllOfAServersLastWordsReachAClientThatTalks) {
  Open();
  const int client = Connect();
  const int server = Served(0);
  const std::string last(1'000'000, 'x');
  std::thread server_thread([&] {
    Send(server, last);
    shutdown(server, SHUT_RDWR);
  });
  Send(client, kPreface + Settings());
  EXPECT_EQ(Receive(client, last.size() + 1) == last, true);
  server_thread.join();
}

TEST_F(FrontDoorTest, TooManyConnectionsAreRefusedByClosing) {
  Open({.connections_admin = 2});
  const int first = Connect();
  Served(0);
  Connect();
  Served(1);
  EXPECT_EQ(Receive(Connect(), 1), "");
  EXPECT_EQ(peers_->connections(), 2);
  // A place is free again when its connection ends.
  shutdown(first, SHUT_RDWR);
  EXPECT_EQ(Receive(Served(0), 1), "");
  Connect();
  Served(2);
}

TEST_F(FrontDoorTest, TooManyResetsEndTheirConnectionOnly) {
  Open({.connection_resets = 5});
  const int quiet = Connect();
  const int quiet_server = Served(0);
  const int flood = Connect();
  const int flood_server = Served(1);
  std::string sent = kPreface;
  for (int i = 0; i < 5; ++i) sent += Call() + Reset();
  const std::string before = sent + Call();
  for (int i = 0; i < 500; ++i) sent += Call() + Reset();
  Send(flood, sent);
  const std::string passed = Receive(flood_server, sent.size());
  EXPECT_TRUE(absl::StartsWith(before, passed)) << passed.size();
  EXPECT_EQ(Receive(flood, 1), "");
  Send(quiet, kPreface + Call());
  EXPECT_EQ(Receive(quiet_server, 33), kPreface + Call());
}

TEST_F(FrontDoorTest, RequestsThatAreNotWholeHaveALimit) {
  Open({.user_unfinished_bytes = 1000});
  // DATA of 400 bytes, by stream and whether it is the last.
  const auto data = [](char stream, bool last) {
    return std::string("\0\1\x90\0", 4) + static_cast<char>(last) +
           std::string(3, '\0') + stream + std::string(400, 'x');
  };
  const int first = Connect();
  const int first_server = Served(0);
  // Whole ones leave room for others.
  std::string sent = kPreface;
  for (char stream = 1; stream < 9; stream += 2) {
    sent += Call() + data(stream, false) + data(stream, true);
  }
  sent += Call() + data(9, false) + Reset() + Call() + data(11, false);
  Send(first, sent);
  EXPECT_EQ(Receive(first_server, sent.size()), sent);
  // The calls of streams 9 (of which stream 1 was reset) and 11 are open.
  Send(first, data(11, false));
  EXPECT_EQ(Receive(first, 1), "");
  // What a connection has open goes with it.
  const int second = Connect();
  const int second_server = Served(1);
  sent = kPreface + Call() + data(1, false) + data(1, false);
  Send(second, sent);
  EXPECT_EQ(Receive(second_server, sent.size()), sent);
}

TEST_F(FrontDoorTest, CallsBeyondAConnectionsShareWait) {
  Open({.connection_calls = 4});
  ExpectFourASecond(Call());
}

TEST_F(FrontDoorTest, CallsBeyondAUsersShareWait) {
  Open({.user_calls = 4});
  ExpectFourASecond(Call());
}

TEST_F(FrontDoorTest, FramesBeyondAConnectionsShareWait) {
  Open({.connection_frames = 4});
  ExpectFourASecond(Settings());
}

// An upload is limited by its bytes, not by its frames.
TEST_F(FrontDoorTest, LargeFramesOfDataAreNotCountedAsFrames) {
  Open({.connection_frames = 4});
  const int client = Connect();
  const int server = Served(0);
  // DATA of kLargeFrameBytes, of stream 1.
  static_assert(kLargeFrameBytes == 0x2000);
  const std::string large =
      std::string("\0\x20\0\0\0\0\0\0\1", 9) + std::string(0x2000, 'x');
  std::string sent = kPreface + Call();
  for (int i = 0; i < 20; ++i) sent += large;
  Send(client, sent);
  EXPECT_EQ(Receive(server, sent.size()) == sent, true);
  // Smaller ones are: three more of the four, and then no other.
  const std::string small = std::string("\0\0\1\0\0\0\0\0\1x", 10);
  Send(client, small + small + small + small);
  EXPECT_EQ(Receive(server, 3 * small.size()).size(), 3 * small.size());
  Send(server, "x");
  EXPECT_EQ(Receive(client, 1), "x");
  char none;
  EXPECT_LT(recv(server, &none, 1, MSG_DONTWAIT), 0);
}

TEST_F(FrontDoorTest, WhoSaysNothingIsCutOff) {
  Open();
  const int silent = Connect();
  const int silent_server = Served(0);
  const int speaks = Connect();
  const std::string begin = kPreface + Settings();
  Send(speaks, begin);
  EXPECT_EQ(Receive(Served(1), begin.size()), begin);
  clock_.Advance(kSilentClientLimit + absl::Milliseconds(1));
  Connect();  // the door looks at once
  EXPECT_EQ(Receive(silent, 1), "");
  EXPECT_EQ(Receive(silent_server, 1), "");
  Send(speaks, Call());
  EXPECT_EQ(Receive(Served(1), Call().size()), Call());
}

TEST_F(FrontDoorTest, WithoutDescriptorsClientsAreRefusedUntilThereAreSome) {
  Open();
  const int refused = Socket();
  const int served = Socket();
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none = {static_cast<rlim_t>(served) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(Receive(Connect(refused), 1), "");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  clock_.Advance(absl::Seconds(1));  // it pauses after a refusal
  Connect(served);
  const int server = Served(0);
  Send(served, kPreface);
  EXPECT_EQ(Receive(server, 24), kPreface);
}

TEST_F(FrontDoorTest, TheSocketIsForItsGroupAndGoesWithTheDoor) {
  Open();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  const int client = Connect();
  const int server = Served(0);
  door_->StopAccepting();
  EXPECT_FALSE(std::filesystem::exists(path_));
  Send(client, kPreface);
  EXPECT_EQ(Receive(server, 24), kPreface) << "connections go on";
  door_->Stop();
  EXPECT_EQ(Receive(client, 1), "");
}

// As on a machine where no daemon ran before.
TEST_F(FrontDoorTest, TheSocketsFolderIsMade) {
  Peers peers({});
  const std::string folder = dir_ / "made";
  {
    ASSERT_TRUE(FrontDoor::Listen(folder + "/socket", &peers).ok());
    struct stat info;
    ASSERT_EQ(stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777 & ~kSocketFolderMode, 0u);
  }
  // It stays, and serves again; no folder above it is made.
  EXPECT_TRUE(FrontDoor::Listen(folder + "/socket", &peers).ok());
  const auto none = FrontDoor::Listen(folder + "/a/b/socket", &peers);
  EXPECT_TRUE(absl::StrContains(none.status().message(), "can't be made"))
      << none.status();
}

// Somebody else's folder, or link to one, in a place like /tmp.
TEST_F(FrontDoorTest, AFolderOfAnotherUsersInASharedPlaceIsRefused) {
  Peers peers({});
  const std::string shared = dir_ / "shared";
  std::filesystem::create_directories(shared + "/own");
  std::filesystem::create_directory_symlink(shared + "/own", shared + "/link");
  EXPECT_TRUE(FrontDoor::Listen(shared + "/link/socket", &peers).ok());
  ASSERT_EQ(chmod(shared.c_str(), 01777), 0);
  EXPECT_TRUE(FrontDoor::Listen(shared + "/own/socket", &peers).ok());
  const auto linked = FrontDoor::Listen(shared + "/link/socket", &peers);
  EXPECT_TRUE(absl::StrContains(linked.status().message(), "is no folder"))
      << linked.status();
  if (chown((shared + "/own").c_str(), 1, 1) == 0) {  // as root only
    for (const char* path : {"/own/socket", "//own//socket"}) {
      const auto taken = FrontDoor::Listen(shared + path, &peers);
      EXPECT_TRUE(absl::StrContains(taken.status().message(), "another user"))
          << taken.status();
    }
  }
}

TEST_F(FrontDoorTest, WhatHasTheNameAlready) {
  Open();
  Peers peers({});
  const auto second = FrontDoor::Listen(path_, &peers);
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  // A socket that nobody listens on: its daemon was killed.
  const std::string stale = dir_ / "stale";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, stale.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(
      bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)),
      0);
  close(fd);
  EXPECT_TRUE(FrontDoor::Listen(stale, &peers).ok());
  std::ofstream(dir_ / "file") << "x";
  EXPECT_TRUE(
      absl::IsAlreadyExists(FrontDoor::Listen(dir_ / "file", &peers).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      FrontDoor::Listen(dir_ / "none" / "a" / "s", &peers).status()));
}

}  // namespace
}  // namespace roundhouse
