#include "worker/device/device_conformance.h"

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/convert.h"

namespace roundhouse::worker {

namespace {

std::vector<std::byte> Pattern(size_t bytes, int seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>(i * 131 + seed);
  }
  return pattern;
}

float* Floats(const DeviceBuffer& buffer) {
  return reinterpret_cast<float*>(buffer.data());
}

// Memory as the arena's is.
class SharedMapping {
 public:
  explicit SharedMapping(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~SharedMapping() { munmap(data_, bytes_); }
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  const size_t bytes_;
  void* const data_;
};

// A device with one stream, and floats in and out of it.
struct Bench {
  explicit Bench(std::unique_ptr<Device> opened)
      : device(std::move(opened)), stream(*device->NewStream()) {}

  std::unique_ptr<DeviceBuffer> Upload(const std::vector<float>& values) {
    auto buffer = *device->Allocate(values.size() * sizeof(float), "floats");
    EXPECT_TRUE(
        stream
            ->CopyToDevice(buffer->data(),
                           reinterpret_cast<const std::byte*>(values.data()),
                           buffer->bytes())
            .ok());
    // `values` may be gone when this returns.
    EXPECT_TRUE((*stream->Record())->Wait().ok());
    return buffer;
  }

  std::vector<float> Download(const DeviceBuffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    EXPECT_TRUE(stream
                    ->CopyToHost(reinterpret_cast<std::byte*>(values.data()),
                                 buffer.data(), buffer.bytes())
                    .ok());
    EXPECT_TRUE((*stream->Record())->Wait().ok());
    return values;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

TEST_P(DeviceConformance, BuffersAreAlignedAndCountedExactly) {
  const auto device = Open(4096);
  EXPECT_EQ(device->memory().used_bytes, 0u);
  auto first = *device->Allocate(1, "first");
  auto second = *device->Allocate(65, "second");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data()) % 64, 0u);
  EXPECT_EQ(first->bytes(), 1u);
  EXPECT_EQ(device->memory().used_bytes, 64u + 128u);
  second.reset();
  EXPECT_EQ(device->memory().used_bytes, 64u);
  EXPECT_EQ(device->memory().peak_bytes, 192u);
}

TEST_P(DeviceConformance, RefusesWhatDoesNotFitAndNamesTheBytes) {
  const auto device = Open(4096);
  auto held = *device->Allocate(4000, "held");
  const auto refused = device->Allocate(128, "one too many");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string text(refused.status().message());
  EXPECT_NE(text.find("one too many wants 128 bytes, 64 of 4096 are free"),
            std::string::npos)
      << text;
  EXPECT_EQ(device->memory().used_bytes, 4032u);
  EXPECT_TRUE(device->Allocate(64, "the rest").ok());
}

// worker/slot grants memory by counting bytes.
TEST_P(DeviceConformance, WhatFitsByCountFitsWhereverTheHolesAre) {
  const auto device = Open(8 << 20);
  std::vector<std::unique_ptr<DeviceBuffer>> pieces;
  for (int i = 0; i < 8; ++i) {
    pieces.push_back(*device->Allocate(1 << 20, "piece"));
  }
  for (int i = 0; i < 8; i += 2) pieces[i].reset();
  const auto large = device->Allocate(4 << 20, "as large as the holes");
  EXPECT_TRUE(large.ok()) << large.status();
}

TEST_P(DeviceConformance, PeakStartsAnewWhenTaken) {
  const auto device = Open(4096);
  auto held = *device->Allocate(256, "held");
  device->Allocate(1024, "short").value().reset();
  EXPECT_EQ(device->TakePeak(), 1280u);
  EXPECT_EQ(device->TakePeak(), 256u);
}

TEST_P(DeviceConformance, CopiesBytesBothWaysAndOnDevice) {
  const auto device = Open(1 << 20);
  auto stream = *device->NewStream();
  const std::vector<std::byte> source = Pattern(70'001, 3);
  auto first = *device->Allocate(source.size(), "first");
  auto second = *device->Allocate(source.size(), "second");
  std::vector<std::byte> back(source.size());
  ASSERT_TRUE(
      stream->CopyToDevice(first->data(), source.data(), source.size()).ok());
  ASSERT_TRUE(
      stream->CopyOnDevice(second->data(), first->data(), source.size()).ok());
  ASSERT_TRUE(
      stream->CopyToHost(back.data(), second->data(), back.size()).ok());
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  EXPECT_EQ(back, source);
}

// A float of milliseconds rounds to nanoseconds.
TEST_P(DeviceConformance, MarksAreInTheOrderOfTheWork) {
  const auto device = Open(1 << 20);
  auto stream = *device->NewStream();
  auto buffer = *device->Allocate(1 << 16, "buffer");
  auto* const floats = reinterpret_cast<float*>(buffer->data());
  std::vector<std::unique_ptr<TimeMark>> marks;
  for (int i = 0; i < 3; ++i) {
    marks.push_back(*stream->MarkTime());
    ASSERT_TRUE(stream->ZeroFloats(floats, 1 << 14).ok());
  }
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  const auto between = [&](int from, int to) {
    return static_cast<double>(*marks[to]->NsSince(*marks[from]));
  };
  EXPECT_EQ(between(1, 1), 0);
  EXPECT_GE(between(0, 1), 0);
  EXPECT_GE(between(1, 2), 0);
  EXPECT_NEAR(between(0, 1) + between(1, 2), between(0, 2), 1000);
}

TEST_P(DeviceConformance, DeviceMemoryIsApartFromTheHosts) {
  const auto device = Open(1 << 20);
  auto stream = *device->NewStream();
  std::vector<std::byte> source = Pattern(512, 1);
  const std::vector<std::byte> kept = source;
  auto buffer = *device->Allocate(source.size(), "buffer");
  ASSERT_TRUE(
      stream->CopyToDevice(buffer->data(), source.data(), source.size()).ok());
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  source.assign(source.size(), std::byte{0});
  std::vector<std::byte> back(source.size());
  ASSERT_TRUE(
      stream->CopyToHost(back.data(), buffer->data(), back.size()).ok());
  ASSERT_TRUE((*stream->Record())->Wait().ok());
  EXPECT_EQ(back, kept);
}

TEST_P(DeviceConformance, AnEventWaitedForLetsAnotherStreamGoOn) {
  const auto device = Open(1 << 20);
  auto up = *device->NewStream();
  auto down = *device->NewStream();
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::byte> source = Pattern(10'000, round);
    auto buffer = *device->Allocate(source.size(), "buffer");
    ASSERT_TRUE(
        up->CopyToDevice(buffer->data(), source.data(), source.size()).ok());
    ASSERT_TRUE((*up->Record())->Wait().ok());
    std::vector<std::byte> back(source.size());
    ASSERT_TRUE(
        down->CopyToHost(back.data(), buffer->data(), back.size()).ok());
    ASSERT_TRUE((*down->Record())->Wait().ok());
    EXPECT_EQ(back, source);
  }
}

// Pieces of one mapping, as the arena's are.
TEST_P(DeviceConformance, CopiesFromMemoryThatIsPinnedMeanwhile) {
  constexpr size_t kPiece = 1 << 20;
  const auto device = Open(4 * kPiece);
  auto stream = *device->NewStream();
  SharedMapping host(3 * kPiece);
  const std::vector<std::byte> source = Pattern(kPiece, 9);
  auto buffer = *device->Allocate(kPiece, "buffer");
  std::vector<std::unique_ptr<PinnedHost>> pinned;
  for (int round = 0; round < 3; ++round) {
    std::byte* const from = host.data() + round * kPiece;
    std::byte* const to = host.data() + ((round + 1) % 3) * kPiece;
    std::memcpy(from, source.data(), kPiece);
    ASSERT_TRUE(stream->CopyToDevice(buffer->data(), from, kPiece).ok());
    auto piece = device->PinHost(from, kPiece);
    ASSERT_TRUE(piece.ok()) << piece.status();
    pinned.push_back(*std::move(piece));
    ASSERT_TRUE(stream->CopyToHost(to, buffer->data(), kPiece).ok());
    ASSERT_TRUE((*stream->Record())->Wait().ok());
    EXPECT_EQ(std::memcmp(to, source.data(), kPiece), 0) << round;
  }
}

TEST_P(DeviceConformance, AddsElementByElementRoundingOnce) {
  Bench bench(Open(1 << 20));
  std::vector<float> left(1001), right(1001), sum(1001);
  for (int i = 0; i < 1001; ++i) {
    left[i] = 1.0f / static_cast<float>(i + 1);
    right[i] = 1e-7f * static_cast<float>(i) - 3.0f;
    sum[i] = left[i] + right[i];
  }
  auto to = bench.Upload(left);
  auto from = bench.Upload(right);
  ASSERT_TRUE(bench.stream->AddFloats(Floats(*to), Floats(*from), 1001).ok());
  const std::vector<float> found = bench.Download(*to);
  EXPECT_EQ(std::memcmp(found.data(), sum.data(), 1001 * sizeof(float)), 0);
  EXPECT_EQ(bench.Download(*from), right);
}

// All roundings, ties and overflows among them, are base/convert.h's.
TEST_P(DeviceConformance, RoundsToNearestEvenAsTheHostDoes) {
  Bench bench(Open(1 << 20));
  std::vector<float> values = {
      0,     -0.0f,  1,       65519,
      65520, -65520, 3.4e38f, std::numeric_limits<float>::infinity()};
  // Halves and neighbours of the last kept bit, across the exponents.
  for (int exponent = -40; exponent <= 20; ++exponent) {
    for (const int bits : {0x3f80'0fff, 0x3f80'1000, 0x3f80'1001, 0x3f80'3000,
                           0x3f80'7fff, 0x3f80'8000, 0x3f81'8000}) {
      const float one = std::bit_cast<float>(bits);
      values.push_back(std::ldexp(exponent % 2 == 0 ? one : -one, exponent));
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  auto from = bench.Upload(values);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<std::byte> wanted(values.size() * DTypeBytes(dtype));
    std::vector<std::byte> found(wanted.size());
    FromF32(dtype, values.data(), wanted.data(), values.size());
    auto to = *bench.device->Allocate(wanted.size(), "rounded");
    ASSERT_TRUE(
        bench.stream->RoundFloats(to->data(), Floats(*from), count, dtype)
            .ok());
    ASSERT_TRUE(
        bench.stream->CopyToHost(found.data(), to->data(), found.size()).ok());
    ASSERT_TRUE((*bench.stream->Record())->Wait().ok());
    EXPECT_EQ(found, wanted) << DTypeName(dtype);
  }
  EXPECT_EQ(bench.Download(*from), values);
}

TEST_P(DeviceConformance, ANanStaysOneWhenRounded) {
  Bench bench(Open(1 << 20));
  auto from = bench.Upload({std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::quiet_NaN()});
  auto to = *bench.device->Allocate(2 * sizeof(uint16_t), "rounded");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    ASSERT_TRUE(
        bench.stream->RoundFloats(to->data(), Floats(*from), 2, dtype).ok());
    uint16_t rounded[2] = {};
    float values[2] = {};
    ASSERT_TRUE(bench.stream
                    ->CopyToHost(reinterpret_cast<std::byte*>(rounded),
                                 to->data(), sizeof(rounded))
                    .ok());
    ASSERT_TRUE((*bench.stream->Record())->Wait().ok());
    ToF32(dtype, rounded, values, 2);
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  }
}

// Every 16-bit pattern, infinities and subnormals among them; a NaN by being
// one.
TEST_P(DeviceConformance, WidensExactlyAsTheHostDoes) {
  constexpr int64_t kCount = 1 << 16;
  Bench bench(Open(1 << 20));
  std::vector<uint16_t> bits(kCount);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  auto from = *bench.device->Allocate(kCount * sizeof(uint16_t), "16 bits");
  ASSERT_TRUE(
      bench.stream
          ->CopyToDevice(from->data(),
                         reinterpret_cast<const std::byte*>(bits.data()),
                         from->bytes())
          .ok());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<float> wanted(kCount);
    ToF32(dtype, bits.data(), wanted.data(), kCount);
    auto to = bench.Upload(std::vector<float>(kCount + 1, 7));
    ASSERT_TRUE(
        bench.stream->WidenFloats(Floats(*to), from->data(), kCount, dtype)
            .ok());
    const std::vector<float> found = bench.Download(*to);
    EXPECT_EQ(found[kCount], 7);
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_TRUE(std::isnan(wanted[i]) ? std::isnan(found[i])
                                        : std::bit_cast<uint32_t>(wanted[i]) ==
                                              std::bit_cast<uint32_t>(found[i]))
          << DTypeName(dtype) << " " << i;
    }
  }
}

TEST_P(DeviceConformance, ZeroesExactlyTheElementsAsked) {
  Bench bench(Open(1 << 20));
  auto buffer = bench.Upload({1, 2, 3, 4, 5});
  ASSERT_TRUE(bench.stream->ZeroFloats(Floats(*buffer) + 1, 3).ok());
  EXPECT_EQ(bench.Download(*buffer), (std::vector<float>{1, 0, 0, 0, 5}));
}

// In a process of its own, started anew: this one goes on.
TEST_P(DeviceConformance, ABrokenDeviceIsLost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench(Open(1 << 20));
        auto other = *bench.device->NewStream();
        auto buffer = bench.Upload({1, 2});
        absl::Status broken = bench.stream->BreakDevice();
        if (broken.ok()) {
          auto event = bench.stream->Record();
          broken = event.ok() ? (*event)->Wait() : event.status();
        }
        const absl::Status elsewhere = other->ZeroFloats(Floats(*buffer), 2);
        std::fprintf(stderr, "%s; elsewhere %s\n", broken.ToString().c_str(),
                     elsewhere.ToString().c_str());
        std::_Exit(absl::IsAborted(broken) && absl::IsAborted(elsewhere) ? 7
                                                                         : 8);
      },
      testing::ExitedWithCode(7), "device is lost: ");
}

TEST_P(DeviceConformance, AllocatesFromSeveralThreadsWithinTheLimit) {
  const auto device = Open(64 * 100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&device] {
      for (int i = 0; i < 200; ++i) {
        auto buffer = device->Allocate(64 * 30, "share");
        EXPECT_LE(device->memory().used_bytes, 64u * 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device->memory().used_bytes, 0u);
  EXPECT_LE(device->memory().peak_bytes, 64u * 100);
}

}  // namespace
}  // namespace roundhouse::worker
