// A CUDA device's peers on fakes of CUDA's runtime and of NCCL: what they ask
// of NCCL and what they make of its answers, on any machine.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_peers.h"
#include "worker/device/cuda/fake_cudart.h"
#include "worker/device/cuda/fake_nccl.h"
#include "worker/device/peers_conformance.h"

namespace roundhouse::worker {
namespace {

// All members are on the one device that the fake has.
absl::StatusOr<std::unique_ptr<Device>> OpenFake(int, uint64_t memory_bytes) {
  return NewCudaDevice(
      {.index = FakeCudart::kDevice, .memory_bytes = memory_bytes});
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, PeersConformance,
                         testing::Values(PeerDeviceFactory(&OpenFake)));

class CudaPeersLogicTest : public testing::Test {
 protected:
  CudaPeersLogicTest() {
    for (int rank = 0; rank < 2; ++rank) {
      members_[rank].rank = rank;
      members_[rank].size = 2;
      members_[rank].device = *OpenFake(rank, 1 << 20);
      members_[rank].stream = *members_[rank].device->NewStream();
    }
    aborts_before_ = Nccl().aborts;
  }
  void TearDown() override {
    Cudart().lost = cudaSuccess;
    Nccl().id = Nccl().init = Nccl().group = Nccl().async = ncclSuccess;
    Nccl().async_lost = cudaSuccess;
    Nccl().in_progress = 2;
    for (PeerMember& member : members_) member.group.reset();
    EXPECT_EQ(Nccl().communicators, 0);
  }

  PeerGroupId NewId() { return *members_[0].device->peers()->NewGroupId(); }

  void JoinBoth() {
    const PeerGroupId id = NewId();
    std::thread second([&] { EXPECT_TRUE(members_[1].Join(id).ok()); });
    EXPECT_TRUE(members_[0].Join(id).ok());
    second.join();
  }

  // Member 0 sends to member 1, which does not take it.
  absl::Status SendInVain() {
    letter_ = members_[0].Upload(std::vector<std::byte>(64));
    return members_[0].group->Exchange(
        *members_[0].stream,
        {{.rank = 1, .send = letter_->data(), .send_bytes = 64}});
  }
  absl::Status Finish() {
    return members_[0].group->Finish(*members_[0].stream);
  }
  int Aborts() const { return Nccl().aborts - aborts_before_; }

  PeerMember members_[2];
  std::unique_ptr<DeviceBuffer> letter_;
  int aborts_before_ = 0;
};

void ExpectUnavailable(const absl::Status& status, const std::string& text) {
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
}

TEST_F(CudaPeersLogicTest, AnExchangeIsOnTheStreamWhenItsCallReturns) {
  Nccl().in_progress = 20;
  JoinBoth();
  const int before = Nccl().kernels;
  EXPECT_TRUE(SendInVain().ok());
  EXPECT_EQ(Nccl().kernels, before + 1);
}

TEST_F(CudaPeersLogicTest, NothingToCopyIsNoKernel) {
  JoinBoth();
  const int before = Nccl().kernels;
  EXPECT_TRUE(
      members_[0].group->Exchange(*members_[0].stream, {{.rank = 1}}).ok());
  EXPECT_TRUE(Finish().ok());
  EXPECT_EQ(Nccl().kernels, before);
}

TEST_F(CudaPeersLogicTest, NoIdIsUnavailable) {
  Nccl().id = ncclSystemError;
  ExpectUnavailable(members_[0].device->peers()->NewGroupId().status(),
                    "ncclGetUniqueId: fake error");
}

TEST_F(CudaPeersLogicTest, AJoinThatNcclRefusesIsUnavailable) {
  Nccl().init = ncclInternalError;
  ExpectUnavailable(members_[0].Join(NewId()),
                    "peers: joining as rank 0 of 2: fake error");
  EXPECT_EQ(Aborts(), 0);  // there is no communicator
}

TEST_F(CudaPeersLogicTest, AJoinThatFailsLaterIsAbortedOnce) {
  Nccl().async = ncclRemoteError;
  ExpectUnavailable(members_[0].Join(NewId()),
                    "joining as rank 0 of 2: fake remote error");
  EXPECT_EQ(Aborts(), 1);
}

TEST_F(CudaPeersLogicTest, AJoinThatIsGivenUpIsAbortedOnce) {
  members_[0].given_up = true;
  ExpectUnavailable(members_[0].Join(NewId()),
                    "joining as rank 0 of 2 was given up");
  EXPECT_EQ(Aborts(), 1);
}

TEST_F(CudaPeersLogicTest, AnExchangeThatNcclRefusesEndsTheGroup) {
  JoinBoth();
  Nccl().group = ncclSystemError;
  ExpectUnavailable(SendInVain(), "an exchange: fake error");
  EXPECT_EQ(Aborts(), 1);
  Nccl().group = ncclSuccess;
  ExpectUnavailable(SendInVain(), "an exchange: fake error");
  ExpectUnavailable(Finish(), "an exchange: fake error");
  EXPECT_EQ(Aborts(), 1);
}

TEST_F(CudaPeersLogicTest, AnErrorBeforeTheKernelIsThereEndsTheGroup) {
  JoinBoth();
  Nccl().async = ncclRemoteError;
  const int before = Nccl().kernels;
  ExpectUnavailable(SendInVain(), "an exchange: fake remote error");
  EXPECT_EQ(Nccl().kernels, before);
}

TEST_F(CudaPeersLogicTest, ARemoteErrorEndsWhatIsUnderWay) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  Nccl().async = ncclRemoteError;
  ExpectUnavailable(Finish(), "an exchange: fake remote error");
  EXPECT_EQ(Aborts(), 1);
  // The stream goes on.
  EXPECT_TRUE((*members_[0].stream->Record())->Wait().ok());
}

TEST_F(CudaPeersLogicTest, OfManyWhoAbortOneDoes) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] { members_[0].group->Abort(); });
  }
  ExpectUnavailable(Finish(), "the group was aborted");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Aborts(), 1);
}

// NCCL may wait for the kernels of another group, which is aborted next.
TEST_F(CudaPeersLogicTest, WhoAbortsDoesNotWaitForNccl) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  Nccl().hold_aborts = true;
  members_[0].group->Abort();
  members_[1].group->Abort();
  EXPECT_EQ(Aborts(), 0);
  Nccl().hold_aborts = false;
  ExpectUnavailable(Finish(), "the group was aborted");
  EXPECT_GE(Aborts(), 1);
}

// The process ends then, and another worker begins with a device that is clean.
TEST_F(CudaPeersLogicTest, AnAbortThatHangsIsALostDevice) {
  const auto link =
      NewCudaPeers(FakeCudart::kDevice, /*max_abort=*/absl::Milliseconds(20));
  const PeerGroupId id = NewId();
  std::unique_ptr<PeerGroup> group;
  std::thread first(
      [&] { group = *link->Join(id, 0, 2, members_[0].given_up); });
  EXPECT_TRUE(members_[1].Join(id).ok());
  first.join();
  Nccl().hold_aborts = true;
  group->Abort();
  const absl::Status status = group->Finish(*members_[0].stream);
  EXPECT_EQ(status, absl::AbortedError("device is lost: ncclCommAbort has not "
                                       "returned for 20ms"));
  EXPECT_EXIT(group.reset(), testing::ExitedWithCode(1),
              "ncclCommAbort has not returned for 20ms; this process ends");
  Nccl().hold_aborts = false;
  while (absl::IsAborted(group->Finish(*members_[0].stream))) {
    std::this_thread::yield();
  }
}

TEST_F(CudaPeersLogicTest, NcclsOwnWordsAreSaid) {
  Nccl().id = ncclSystemError;
  Nccl().last_error = "no socket";
  ExpectUnavailable(members_[0].device->peers()->NewGroupId().status(),
                    "ncclGetUniqueId: fake error: no socket");
  Nccl().last_error = "";
}

TEST_F(CudaPeersLogicTest, AnErrorOfCudaThatIsNotTheDevicesIsTheGroups) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  Nccl().async = ncclUnhandledCudaError;
  ExpectUnavailable(Finish(), "an exchange: fake error");
}

TEST_F(CudaPeersLogicTest, ALostDeviceIsAborted) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  Cudart().lost = cudaErrorIllegalAddress;
  EXPECT_TRUE(absl::IsAborted(Finish()));
  EXPECT_TRUE(absl::IsAborted(
      members_[0].group->Exchange(*members_[0].stream, {{.rank = 1}})));
  EXPECT_TRUE(
      absl::IsAborted(members_[0].device->peers()->NewGroupId().status()));
  EXPECT_TRUE(absl::IsAborted(members_[0].Join(PeerGroupId{})));
}

// NCCL's own call need not come back.
TEST_F(CudaPeersLogicTest, ADeviceThatNcclFindsLostIsSaidAtOnce) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  Nccl().hold_aborts = true;
  Nccl().async_lost = cudaErrorIllegalAddress;
  Nccl().async = ncclUnhandledCudaError;
  EXPECT_TRUE(absl::IsAborted(Finish()));
  EXPECT_EQ(Aborts(), 0);
  Nccl().hold_aborts = false;
}

// Found out by NCCL's threads, whatever they call it.
TEST_F(CudaPeersLogicTest, ADeviceThatIsLostMeanwhileIsAborted) {
  JoinBoth();
  ASSERT_TRUE(SendInVain().ok());
  ASSERT_TRUE(members_[0].stream->BreakDevice().ok());
  members_[0].group->Abort();
  EXPECT_TRUE(absl::IsAborted(Finish()));
}

}  // namespace
}  // namespace roundhouse::worker
