#include "worker/slot/lost_device.h"

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

TEST(LostDeviceTest, ALostDeviceEndsTheProcessAndSaysWhy) {
  EXPECT_EXIT(EndProcessIfLost(absl::AbortedError("device is lost: Xid 79")),
              testing::ExitedWithCode(1), "device is lost: Xid 79");
}

TEST(LostDeviceTest, OtherErrorsAreTheSlots) {
  EndProcessIfLost(absl::OkStatus());
  EndProcessIfLost(absl::CancelledError("given up"));
  EndProcessIfLost(absl::InternalError("the model"));
}

}  // namespace
}  // namespace roundhouse::worker
