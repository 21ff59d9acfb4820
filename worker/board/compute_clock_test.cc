#include "worker/board/compute_clock.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A device whose clock the test sets: marks read it when they are made, as if
// the work before them were done then.
class SetClockStream : public Stream {
 public:
  class Mark : public TimeMark {
   public:
    explicit Mark(int64_t at_ns) : at_ns_(at_ns) {}
    absl::StatusOr<int64_t> NsSince(const TimeMark& earlier) const override {
      return at_ns_ - static_cast<const Mark&>(earlier).at_ns_;
    }

   private:
    const int64_t at_ns_;
  };
  class Done : public Event {
   public:
    explicit Done(absl::Status status) : status_(std::move(status)) {}
    absl::Status Wait() override { return status_; }

   private:
    const absl::Status status_;
  };

  absl::Status CopyToDevice(std::byte*, const std::byte*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyToHost(std::byte*, const std::byte*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyOnDevice(std::byte*, const std::byte*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status AddFloats(float*, const float*, int64_t) override {
    return absl::OkStatus();
  }
  absl::Status ZeroFloats(float*, int64_t) override { return absl::OkStatus(); }
  absl::Status RoundFloats(std::byte*, const float*, int64_t, DType) override {
    return absl::OkStatus();
  }
  absl::Status WidenFloats(float*, const std::byte*, int64_t, DType) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    return std::make_unique<Done>(status);
  }
  absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() override {
    return std::make_unique<Mark>(now_ns);
  }
  absl::Status BreakDevice() override { return absl::UnimplementedError(""); }
  NativeStream native() const override { return {}; }

  int64_t now_ns = 0;
  absl::Status status;
};

class ComputeClockTest : public testing::Test {
 protected:
  void Wait(int64_t queued_until_ns, int64_t began_ns, int64_t ended_ns) {
    stream_.now_ns = queued_until_ns;
    clock_.NoteWait(*clock_.Now(), began_ns, ended_ns,
                    {{ended_ns, wire::WaitCause::kH2D}});
  }
  int64_t H2D() const {
    return waits_[static_cast<size_t>(wire::WaitCause::kH2D)];
  }

  SetClockStream stream_;
  ComputeClock clock_{stream_, 3, 2};
  wire::WaitTimes waits_ = {};
};

// The micro-batch began at most `late_ns` before `begin_ns`; all of the rest is
// seconds after it.
TEST_F(ComputeClockTest, OnlyWhatTheDeviceStoodStillIsAWait) {
  stream_.now_ns = 0;
  const int64_t before_ns = MonotonicNs();
  ASSERT_TRUE(clock_.BeginMicroBatch().ok());
  const int64_t begin_ns = MonotonicNs();
  const int64_t late_ns = begin_ns - before_ns;
  const auto at = [&](int64_t seconds) { return begin_ns + seconds * kSecond; };
  // Done long before the thread waited: all of the wait.
  Wait(1 * kSecond, at(10), at(12));
  // Computed until the middle of the wait: the rest.
  Wait(23 * kSecond, at(20), at(24));
  // Computed beyond the wait: none.
  Wait(4000 * kSecond, at(30), at(35));
  const auto waited_ns = clock_.EndMicroBatch(true, waits_);
  ASSERT_TRUE(waited_ns.ok());
  EXPECT_GE(*waited_ns, 3 * kSecond);
  EXPECT_LE(*waited_ns, 3 * kSecond + late_ns);
  EXPECT_EQ(H2D(), *waited_ns);
}

TEST_F(ComputeClockTest, LayersHaveTheDevicesTimes) {
  ASSERT_TRUE(clock_.BeginMicroBatch().ok());
  const auto run = [&](uint32_t layer, PassDirection direction, int64_t ns) {
    ComputeClock::Mark began = *clock_.Now();
    stream_.now_ns += ns;
    ASSERT_TRUE(clock_.EndLayer(layer, direction, std::move(began)).ok());
    stream_.now_ns += 7;  // between layers
  };
  run(3, PassDirection::kForward, 1'000'000);  // the first calls: not counted
  ASSERT_TRUE(clock_.EndMicroBatch(false, waits_).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(clock_.BeginMicroBatch().ok());
    run(3, PassDirection::kForward, 100);
    run(4, PassDirection::kForward, 200);
    run(4, PassDirection::kBackward, 300 + i * 10);
    ASSERT_TRUE(clock_.EndMicroBatch(true, waits_).ok());
  }
  const auto times = clock_.LayerTimes(2);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].layer, 3u);
  EXPECT_EQ(times[0].samples, 2u);
  EXPECT_EQ(times[0].forward_ns, 100);
  EXPECT_EQ(times[0].backward_ns, 0);
  EXPECT_EQ(times[1].forward_ns, 200);
  EXPECT_EQ(times[1].backward_ns, 305);
  EXPECT_EQ(H2D(), 0);
}

TEST_F(ComputeClockTest, ALostDeviceIsSaid) {
  ASSERT_TRUE(clock_.BeginMicroBatch().ok());
  stream_.status = absl::AbortedError("device is lost");
  EXPECT_TRUE(absl::IsAborted(clock_.EndMicroBatch(true, waits_).status()));
  EXPECT_TRUE(absl::IsAborted(Drain(stream_)));
}

}  // namespace
}  // namespace roundhouse::worker
