#include "base/wire/gpu_event.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

TEST(GpuEventTest, ALineIsReadAsItWasWritten) {
  const GpuEvent event{"GPU-5a0f", 79};
  EXPECT_EQ(EncodeGpuEvent(event), "GPU-5a0f xid 79");
  EXPECT_EQ(*DecodeGpuEvent("GPU-5a0f xid 79"), event);
}

TEST(GpuEventTest, OtherLinesAreRefused) {
  for (const std::string& line :
       {std::string(), std::string("GPU-5a0f xid"),
        std::string("GPU-5a0f xid -1"), std::string("GPU-5a0f xid 079"),
        std::string("GPU-5a0f xid 4294967296"), std::string(" xid 79"),
        std::string("GPU-5a0f ecc 79"), std::string("GPU-5a0f xid 79 "),
        std::string("GPU-5a0f\txid 79"), std::string("GPU\0 xid 79", 11),
        std::string(kMaxGpuEventBytes, 'G') + " xid 79"}) {
    EXPECT_EQ(DecodeGpuEvent(line).status().code(),
              absl::StatusCode::kInvalidArgument)
        << line;
  }
}

}  // namespace
}  // namespace roundhouse::wire
