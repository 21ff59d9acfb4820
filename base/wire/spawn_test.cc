#include "base/wire/spawn.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

class SpawnTest : public testing::Test {
 protected:
  SpawnTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds_), 0);
  }
  ~SpawnTest() override {
    for (const int fd : fds_) close(fd);
  }

  int fds_[2] = {-1, -1};
};

TEST_F(SpawnTest, ArgumentsAndDescriptorsArrive) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(
      SendSpawn(fds_[0], {{"--role=host", ""}, {ends[1], ends[1]}}).ok());
  close(ends[1]);
  const auto request = ReceiveSpawn(fds_[1]);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->arguments, (std::vector<std::string>{"--role=host", ""}));
  ASSERT_EQ(request->descriptors.size(), 2u);
  ASSERT_EQ(write(request->descriptors[1], "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  for (const int fd : request->descriptors) close(fd);
  close(ends[0]);
}

TEST_F(SpawnTest, AsMuchAsTheLimitsAllowAndNoMore) {
  SpawnRequest request;
  request.arguments = {std::string(kMaxSpawnBytes - 1, 'a')};
  request.descriptors.assign(kMaxSpawnDescriptors, 2);
  ASSERT_TRUE(SendSpawn(fds_[0], request).ok());
  const auto got = ReceiveSpawn(fds_[1]);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->arguments, request.arguments);
  EXPECT_EQ(got->descriptors.size(), kMaxSpawnDescriptors);
  for (const int fd : got->descriptors) close(fd);

  const auto invalid = absl::StatusCode::kInvalidArgument;
  request.descriptors.push_back(2);
  EXPECT_EQ(SendSpawn(fds_[0], request).code(), invalid);
  request.descriptors.clear();
  request.arguments[0] += "a";
  EXPECT_EQ(SendSpawn(fds_[0], request).code(), invalid);
  EXPECT_EQ(SendSpawn(fds_[0], {}).code(), invalid);
  EXPECT_EQ(SendSpawn(fds_[0], {{std::string(1, '\0')}, {}}).code(), invalid);
}

TEST_F(SpawnTest, WhatIsNoRequestIsRefused) {
  ASSERT_EQ(send(fds_[0], "--role", 6, 0), 6);
  EXPECT_EQ(ReceiveSpawn(fds_[1]).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string much(kMaxSpawnBytes + 1, '\0');
  ASSERT_GT(send(fds_[0], much.data(), much.size(), 0), 0);
  EXPECT_EQ(ReceiveSpawn(fds_[1]).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SpawnTest, AnswersArrive) {
  EXPECT_EQ(TryReceiveSpawned(fds_[0]).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(SendSpawned(fds_[1], 77).ok());
  const auto pid = TryReceiveSpawned(fds_[0]);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(*pid, 77);
  ASSERT_EQ(send(fds_[1], "ab", 2, 0), 2);
  EXPECT_EQ(TryReceiveSpawned(fds_[0]).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SpawnTest, ThePeersEndIsTold) {
  const auto gone = absl::StatusCode::kUnavailable;
  close(fds_[1]);
  EXPECT_EQ(SendSpawn(fds_[0], {{"--role=host"}, {}}).code(), gone);
  EXPECT_EQ(ReceiveSpawn(fds_[0]).status().code(), gone);
  EXPECT_EQ(TryReceiveSpawned(fds_[0]).status().code(), gone);
  EXPECT_EQ(SendSpawned(fds_[0], 1).code(), gone);
  fds_[1] = -1;
}

TEST_F(SpawnTest, AFullSocketIsNoWait) {
  absl::Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) {
    status = SendSpawn(fds_[0], {{std::string(1000, 'a')}, {}});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace roundhouse::wire
