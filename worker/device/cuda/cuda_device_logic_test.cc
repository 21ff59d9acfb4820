// CudaDevice on a fake of CUDA's runtime: what it asks of CUDA and what it
// makes of the answers, on any machine.  What CUDA does with it is
// cuda_device_test's.
#include <functional>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/fake_cudart.h"
#include "worker/device/device_conformance.h"

namespace roundhouse::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenFake(uint64_t memory_bytes) {
  return NewCudaDevice({.index = FakeCudart::kDevice,
                        .memory_bytes = memory_bytes,
                        .max_open_wait = absl::Milliseconds(50)});
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, DeviceConformance,
                         testing::Values(DeviceFactory(&OpenFake)));

class CudaDeviceLogicTest : public testing::Test {
 protected:
  void TearDown() override {
    Cudart().lost = cudaSuccess;
    Cudart().kernels = cudaSuccess;
    Cudart().driver_bytes = 256 << 20;
    Cudart().registered.set_limit_bytes(UINT64_MAX);
    EXPECT_EQ(Cudart().objects, 0) << "streams, events, pools";
    EXPECT_EQ(Cudart().allocated_bytes, 0u);
    EXPECT_EQ(Cudart().registered.bytes(), 0u);
  }
};

// In a thread of its own, whose current device is another one.
void Elsewhere(const std::function<void()>& call) { std::thread(call).join(); }

TEST_F(CudaDeviceLogicTest, EveryCallHasTheDeviceCurrentInItsThread) {
  auto device = *OpenFake(1 << 20);
  std::unique_ptr<DeviceBuffer> buffer;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event;
  std::unique_ptr<TimeMark> mark;
  Elsewhere([&] { buffer = *device->Allocate(4096, "buffer"); });
  Elsewhere([&] { stream = *device->NewStream(); });
  auto* const floats = reinterpret_cast<float*>(buffer->data());
  std::byte host[64] = {};
  for (const std::function<absl::Status()>& call :
       std::initializer_list<std::function<absl::Status()>>{
           [&] { return stream->ZeroFloats(floats, 1024); },
           [&] { return stream->AddFloats(floats, floats + 512, 512); },
           [&] { return stream->AddFloats(floats, floats + 512, 0); },
           [&] {
             return stream->RoundFloats(buffer->data(), floats + 512, 512,
                                        DType::kBF16);
           },
           [&] {
             return stream->WidenFloats(floats + 512, buffer->data(), 512,
                                        DType::kF16);
           },
           [&] {
             return stream->WidenFloats(floats, buffer->data(), 0, DType::kF16);
           },
           [&] { return stream->CopyToDevice(buffer->data(), host, 64); },
           [&] { return stream->CopyToHost(host, buffer->data(), 64); },
           [&] {
             auto recorded = stream->Record();
             if (recorded.ok()) event = *std::move(recorded);
             return recorded.status();
           },
           [&] { return event->Wait(); },
           [&] {
             auto marked = stream->MarkTime();
             if (marked.ok()) mark = *std::move(marked);
             return marked.status();
           },
           [&] { return (*stream->Record())->Wait(); },
           [&] { return mark->NsSince(*mark).status(); }}) {
    Elsewhere([&] { EXPECT_TRUE(call().ok()); });
  }
  Elsewhere([&] { event.reset(); });
  Elsewhere([&] { mark.reset(); });
  Elsewhere([&] { stream.reset(); });
  Elsewhere([&] { buffer.reset(); });
  Elsewhere([&] { device.reset(); });
}

TEST_F(CudaDeviceLogicTest, EventsAreUsedAgain) {
  const auto device = *OpenFake(1 << 20);
  auto stream = *device->NewStream();
  const int before = Cudart().events_made;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE((*stream->Record())->Wait().ok());
  }
  EXPECT_EQ(Cudart().events_made, before + 1);
  // More at once than are kept.
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 1000; ++i) events.push_back(*stream->Record());
  EXPECT_EQ(Cudart().events_made, before + 1000);
  events.clear();
  EXPECT_LT(Cudart().objects, 300);
}

TEST_F(CudaDeviceLogicTest, MarksMeasureTheStreamsWork) {
  const auto device = *OpenFake(1 << 20);
  auto stream = *device->NewStream();
  auto buffer = *device->Allocate(64, "buffer");
  const auto first = *stream->MarkTime();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        stream->ZeroFloats(reinterpret_cast<float*>(buffer->data()), 16).ok());
  }
  const auto second = *stream->MarkTime();
  EXPECT_FALSE(second->NsSince(*first).ok());  // not reached yet
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  EXPECT_EQ(*second->NsSince(*first), 3'000'000);
}

TEST_F(CudaDeviceLogicTest, ADeviceWithLessMemoryThanTheLimitIsNotOpened) {
  Cudart().driver_bytes = 1000;
  const absl::Status status = OpenFake(1024).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().find("device memory: --device-memory wants 1024 "
                                  "bytes; the driver has 1000 of 1000 free, "
                                  "the pool has 0, of which 0 are in use: "),
            0u)
      << status;
}

TEST_F(CudaDeviceLogicTest, MemoryThatTheDriverRefusesIsNotCounted) {
  const auto device = *OpenFake(4096);
  auto held = *device->Allocate(1024, "held");
  Cudart().driver_bytes = 2000;
  const absl::Status status = device->Allocate(1000, "sums").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().find("device memory: sums wants 1024 bytes; the "
                                  "driver has 976 of 2000 free, the pool has "
                                  "1024, of which 1024 are in use: "),
            0u)
      << status;
  EXPECT_EQ(device->memory().used_bytes, 1024u);
}

TEST_F(CudaDeviceLogicTest, MemoryThatIsFreeInPiecesIsJoined) {
  const auto device = *OpenFake(4096);
  device->Allocate(64, "freed, and not seen yet").IgnoreError();
  Cudart().scattered_bytes = Cudart().driver_bytes - 1000;
  EXPECT_TRUE(device->Allocate(1024, "sums").ok());
  EXPECT_EQ(Cudart().scattered_bytes, 0u);
}

// A worker that died had it.
TEST_F(CudaDeviceLogicTest, OpeningWaitsForMemory) {
  Cudart().refusals = 5;
  const auto device = NewCudaDevice({.index = FakeCudart::kDevice,
                                     .memory_bytes = 4096,
                                     .max_open_wait = absl::Minutes(1)});
  EXPECT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(Cudart().refusals, 0);
}

// Whoever asks holds a lock.
TEST_F(CudaDeviceLogicTest, AnAllocationIsAskedForTwice) {
  const auto device = *OpenFake(4096);
  Cudart().refusals = 3;
  EXPECT_FALSE(device->Allocate(1024, "sums").ok());
  EXPECT_EQ(Cudart().refusals, 1);
  EXPECT_TRUE(device->Allocate(1024, "sums").ok());
}

TEST_F(CudaDeviceLogicTest, ThePoolKeepsTheLimitAndALittleMore) {
  Cudart().reserved_bytes = 0;
  const auto device = *OpenFake(4096);
  EXPECT_EQ(Cudart().release_threshold, 4096u + (256 << 20));
}

// The fake's work takes a millisecond a piece.
TEST_F(CudaDeviceLogicTest, OpeningMeasuresTheLink) {
  const auto device = *OpenFake(128 << 20);
  EXPECT_EQ(device->link_bandwidth().to_device, (uint64_t{64} << 20) * 1000);
  EXPECT_EQ(device->link_bandwidth().to_host, (uint64_t{64} << 20) * 1000);
  EXPECT_EQ(device->memory().used_bytes, 0u);
  EXPECT_EQ(device->TakePeak(), 0u);
  EXPECT_EQ(Cudart().registered.bytes(), 0u);
}

TEST_F(CudaDeviceLogicTest, WhereNothingIsPinnedNoLinkIsMeasured) {
  Cudart().registered.set_limit_bytes(4095);
  const auto device = OpenFake(128 << 20);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->link_bandwidth().to_device, 0u);
}

TEST_F(CudaDeviceLogicTest, ADeviceThatIsNotThereAnyMoreIsLost) {
  const auto device = *OpenFake(4096);
  for (const cudaError_t error :
       {cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorDevicesUnavailable,
        cudaErrorOperatingSystem}) {
    Cudart().lost = error;
    EXPECT_TRUE(absl::IsAborted(device->NewStream().status())) << error;
    EXPECT_TRUE(absl::IsFailedPrecondition(OpenFake(4096).status())) << error;
  }
  Cudart().lost = cudaSuccess;  // for the fixture's count
}

TEST_F(CudaDeviceLogicTest, ALostDeviceIsSaidByEveryCallAndGivesAllBack) {
  const auto device = *OpenFake(4096);
  auto stream = *device->NewStream();
  auto event = *stream->Record();
  auto buffer = *device->Allocate(64, "buffer");
  std::byte host[64] = {};
  auto* const floats = reinterpret_cast<float*>(buffer->data());
  Cudart().lost = cudaErrorIllegalAddress;
  for (const absl::Status& status :
       {stream->CopyToDevice(buffer->data(), host, 64),
        stream->CopyToHost(host, buffer->data(), 64),
        stream->CopyOnDevice(buffer->data(), buffer->data(), 64),
        stream->AddFloats(floats, floats + 8, 8), stream->ZeroFloats(floats, 8),
        stream->RoundFloats(buffer->data(), floats + 8, 8, DType::kF16),
        stream->WidenFloats(floats + 8, buffer->data(), 8, DType::kBF16),
        stream->Record().status(), event->Wait(), device->NewStream().status(),
        device->Allocate(64, "more").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message().find("device is lost: "), 0u) << status;
  }
  buffer.reset();
  EXPECT_EQ(device->memory().used_bytes, 0u);
  // What is lost stays with CUDA until the process ends; here the device comes
  // back for the fixture's count.
  Cudart().lost = cudaSuccess;
  Cudart().allocated_bytes = 0;
}

TEST_F(CudaDeviceLogicTest, ATrapLosesTheDeviceOnceItIsReached) {
  const auto device = *OpenFake(4096);
  auto stream = *device->NewStream();
  auto other = *device->NewStream();
  const auto before = *stream->Record();
  Elsewhere([&] { EXPECT_TRUE(stream->BreakDevice().ok()); });
  const auto after = *stream->Record();
  EXPECT_TRUE(before->Wait().ok());
  EXPECT_TRUE(other->Record().ok());
  const absl::Status status = after->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(status.message().find("device is lost: "), 0u) << status;
  EXPECT_TRUE(absl::IsAborted(other->Record().status()));
  Cudart().lost = cudaSuccess;  // for the fixture's count
}

TEST_F(CudaDeviceLogicTest, HostMemoryIsRegisteredWhileItIsPinned) {
  const auto device = *OpenFake(4096);
  auto stream = *device->NewStream();
  auto buffer = *device->Allocate(4096, "buffer");
  alignas(4096) static std::byte host[3 * 4096];
  std::unique_ptr<PinnedHost> pinned;
  Elsewhere([&] { pinned = *device->PinHost(host, 4096); });
  EXPECT_EQ(Cudart().registered.bytes(), 4096u);
  EXPECT_TRUE(stream->CopyToDevice(buffer->data(), host, 4096).ok());
  EXPECT_TRUE(stream->CopyToHost(host + 4096, buffer->data(), 4096).ok());
  EXPECT_FALSE(stream->CopyToHost(host + 4000, buffer->data(), 200).ok());
  auto next = *device->PinHost(host + 4096, 4096);
  EXPECT_FALSE(stream->CopyToDevice(buffer->data(), host + 4000, 200).ok());
  Elsewhere([&] { pinned.reset(); });
  EXPECT_EQ(Cudart().registered.bytes(), 4096u);
}

TEST_F(CudaDeviceLogicTest, MemoryThatTheSystemDoesNotPinIsSaid) {
  const auto device = *OpenFake(4096);
  alignas(4096) static std::byte host[4096];
  Cudart().registered.set_limit_bytes(4095);
  const absl::Status status = device->PinHost(host, 4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Cudart().registered.bytes(), 0u);
}

TEST_F(CudaDeviceLogicTest, ADeviceThatTheBuildHasNoCodeForIsNotOpened) {
  Cudart().kernels = cudaErrorNoKernelImageForDevice;
  const absl::Status status = OpenFake(4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message().find("loading our kernels: "), 0u) << status;
}

TEST_F(CudaDeviceLogicTest, AnIndexBeyondTheDevicesIsNotOpened) {
  for (const int index : {-1, FakeCudart::kDevices}) {
    const absl::Status status =
        NewCudaDevice({.index = index, .memory_bytes = 64}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(": there are 2 (CUDA_VISIBLE_DEVICES"),
              status.message().npos)
        << status;
  }
}

}  // namespace
}  // namespace roundhouse::worker
