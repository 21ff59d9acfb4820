#include "worker/device/lazy_device.h"

#include <cstring>

#include "worker/device/device_conformance.h"
#include "worker/device/peers_conformance.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Lazy, DeviceConformance,
                         testing::Values(DeviceFactory(&NewLazyDevice)));
INSTANTIATE_TEST_SUITE_P(
    Lazy, PeersConformance,
    testing::Values(PeerDeviceFactory([](int, uint64_t memory_bytes) {
      return NewLazyDevice(memory_bytes);
    })));

TEST(LazyDeviceTest, WorkIsDoneWhenItIsWaitedForAndNotBefore) {
  const auto device = NewLazyDevice(4096);
  const auto stream = *device->NewStream();
  float values[2] = {1, 2};
  auto* const bytes = reinterpret_cast<std::byte*>(values);
  const float source[2] = {3, 4};
  ASSERT_TRUE(stream
                  ->CopyToDevice(bytes,
                                 reinterpret_cast<const std::byte*>(source),
                                 sizeof(source))
                  .ok());
  const auto copied = *stream->Record();
  ASSERT_TRUE(stream->AddFloats(values, source, 2).ok());
  EXPECT_EQ(values[0], 1);
  ASSERT_TRUE(copied->Wait().ok());
  EXPECT_EQ(values[0], 3);
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  EXPECT_EQ(values[1], 8);
}

TEST(LazyDeviceTest, AnErrorIsWhatWaitingForItReturns) {
  const auto device = NewLazyDevice(4096);
  const auto stream = *device->NewStream();
  const auto before = *stream->Record();
  QueueWork(stream->native(), [] { return absl::InternalError("it failed"); });
  EXPECT_TRUE(before->Wait().ok());
  EXPECT_EQ((*stream->Record())->Wait(), absl::InternalError("it failed"));
  EXPECT_EQ(FinishWork(stream->native()), absl::InternalError("it failed"));
}

TEST(LazyDeviceTest, MemoryIsNonsenseUntilItIsWritten) {
  const auto device = NewLazyDevice(4096);
  const auto buffer = *device->Allocate(64, "buffer");
  float value = 0;
  std::memcpy(&value, buffer->data(), sizeof(value));
  EXPECT_NE(value, value);
}

}  // namespace
}  // namespace roundhouse::worker
