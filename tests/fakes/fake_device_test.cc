#include "tests/fakes/fake_device.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/test_clock.h"

namespace roundhouse::fakes {
namespace {

constexpr int64_t kMs = 1'000'000;

// An engine's interval in milliseconds, "u0-1".
std::string Text(Engine engine, Resource::Interval interval) {
  const char* const names[] = {"c", "u", "d"};
  return names[static_cast<int>(engine)] +
         std::to_string(interval.begin_ns / kMs) + "-" +
         std::to_string(interval.end_ns / kMs);
}

// A link that carries 1,000 bytes in a millisecond, and threads that wake up
// 3 ms late.
class FakeDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<worker::DeviceBuffer> NewBuffer(uint64_t bytes = 4000) {
    return *device_.Allocate(bytes, "test");
  }

  std::vector<std::string> seen_;
  TestClock clock_{3 * kMs};
  FakeDevice device_{{.memory_bytes = 10'000,
                      .link_bytes_per_second = 1e6,
                      .observe =
                          [this](Engine engine, Resource::Interval interval) {
                            seen_.push_back(Text(engine, interval));
                          }},
                     clock_};
};

using Strings = std::vector<std::string>;

TEST_F(FakeDeviceTest, WorkOnABufferFollowsWhatFilledIt) {
  const auto input = NewBuffer();
  const auto output = NewBuffer();
  device_.Upload(input->data(), 1000);
  device_.Compute(5 * kMs, {input->data()});
  device_.Compute(0, {output->data()});
  device_.Download(output->data(), 2000);
  EXPECT_EQ(seen_, (Strings{"u0-1", "c1-6", "d6-8"}));
}

TEST_F(FakeDeviceTest, ABufferIsNotFilledAgainBeforeItsDownloadEnds) {
  const auto output = NewBuffer();
  device_.Compute(2 * kMs, {output->data()});
  device_.Download(output->data(), 4000);
  device_.Compute(kMs, {output->data()});
  EXPECT_EQ(seen_, (Strings{"c0-2", "d2-6", "c6-7"}));
}

TEST_F(FakeDeviceTest, ComputationThatNeedsNothingNewIsBackToBack) {
  const auto weights = NewBuffer();
  device_.Upload(weights->data(), 4000);
  for (int i = 0; i < 3; ++i) device_.Compute(2 * kMs, {weights->data()});
  EXPECT_EQ(seen_, (Strings{"u0-4", "c4-6", "c6-8", "c8-10"}));
}

TEST_F(FakeDeviceTest, AnUploadBeginsWhenItIsAskedFor) {
  const auto first = NewBuffer();
  const auto second = NewBuffer();
  device_.Upload(first->data(), 1000);
  device_.Upload(second->data(), 1000);
  clock_.Advance(20 * kMs);
  device_.Upload(second->data(), 1000);
  EXPECT_EQ(seen_, (Strings{"u0-1", "u1-2", "u24-25"}));
}

TEST_F(FakeDeviceTest, AnyAddressInABufferStandsForIt) {
  const auto weights = NewBuffer();
  device_.Upload(weights->data() + 1000, 3000);
  device_.Compute(kMs, {weights->data() + 3999});
  device_.Compute(kMs, {nullptr, &seen_});
  EXPECT_EQ(seen_, (Strings{"u0-3", "c3-4", "c4-5"}));
}

TEST_F(FakeDeviceTest, StreamsDoTheSame) {
  const auto stream = *device_.NewStream();
  const auto input = NewBuffer();
  const auto sum = NewBuffer();
  auto* const floats = reinterpret_cast<float*>(sum->data());
  ASSERT_TRUE(stream->CopyToDevice(input->data(), nullptr, 1000).ok());
  ASSERT_TRUE(stream->ZeroFloats(floats, 10).ok());
  ASSERT_TRUE(stream->CopyOnDevice(sum->data(), input->data(), 100).ok());
  ASSERT_TRUE(stream->AddFloats(floats, nullptr, 10).ok());
  ASSERT_TRUE(stream->CopyToHost(nullptr, sum->data(), 1000).ok());
  EXPECT_TRUE((*stream->Record())->Wait().ok());
  EXPECT_EQ(seen_, (Strings{"u0-1", "d1-2"}));
}

TEST_F(FakeDeviceTest, CountsItsMemory) {
  auto most = NewBuffer(9'000);
  const auto refused = device_.Allocate(2'000, "weights of unit 7");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(
      std::string(refused.status().message()).find("weights of unit 7 wants"),
      std::string::npos);
  most.reset();
  EXPECT_EQ(device_.memory().used_bytes, 0u);
  EXPECT_EQ(device_.memory().limit_bytes, 10'000u);
  EXPECT_EQ(device_.TakePeak(), 9'024u);
  EXPECT_EQ(device_.TakePeak(), 0u);
}

TEST_F(FakeDeviceTest, NobodyMayTouchItsMemory) {
  const auto buffer = NewBuffer();
  EXPECT_DEATH(*buffer->data() = std::byte{1}, "");
}

TEST(FakeDeviceWithoutLinksTest, CopiesTakeNoTime) {
  TestClock clock;
  int intervals = 0;
  FakeDevice device(
      {.memory_bytes = 1024,
       .observe = [&](Engine, Resource::Interval) { ++intervals; }},
      clock);
  const auto buffer = *device.Allocate(1000, "test");
  device.Upload(buffer->data(), 1000);
  device.Download(buffer->data(), 1000);
  EXPECT_EQ(intervals, 0);
  EXPECT_EQ(clock.Now(), 0);
}

}  // namespace
}  // namespace roundhouse::fakes
