#include "worker/board/lost_device.h"

#include <stdexcept>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

TEST(LostDeviceTest, ALostDeviceEndsTheProcessAndSaysWhy) {
  EXPECT_EXIT(EndProcessIfLost(absl::AbortedError("device is lost: Xid 79")),
              testing::ExitedWithCode(1), "device is lost: Xid 79");
}

TEST(LostDeviceTest, MemoryThatIsNotThereEndsTheProcessAndSaysWhy) {
  EXPECT_EXIT(EndProcessIfExhausted(absl::ResourceExhaustedError("in pieces")),
              testing::ExitedWithCode(1), "in pieces; this process ends");
  EndProcessIfExhausted(absl::AbortedError("device is lost: Xid 79"));
}

TEST(LostDeviceTest, OtherErrorsAreTheSlots) {
  EndProcessIfLost(absl::OkStatus());
  EndProcessIfLost(absl::CancelledError("given up"));
  EndProcessIfLost(absl::InternalError("the model"));
}

struct ThrowsWhenFreed {
  ~ThrowsWhenFreed() {  // as LibTorch's free may, and noexcept as that is
    Free();
  }
  static void Free() {
    throw std::runtime_error("CUDA error: unspecified launch failure\nmore");
  }
};

TEST(LostDeviceTest, WhatThrowsWhereNothingMayEndsTheProcessAndSaysWhy) {
  EXPECT_EXIT(
      {
        EndProcessOnTerminate();
        ThrowsWhenFreed freed;
      },
      testing::ExitedWithCode(1),
      "CUDA error: unspecified launch failure; this process ends");
}

}  // namespace
}  // namespace roundhouse::worker
