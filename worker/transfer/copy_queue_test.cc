#include "worker/transfer/copy_queue.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kChunk = 4096;

// Keeps the copy that waits for it, and with it the queue, until released.
class HeldEvent : public Event {
 public:
  explicit HeldEvent(std::shared_future<void> released)
      : released_(std::move(released)) {}
  absl::Status Wait() override {
    released_.wait();
    return absl::OkStatus();
  }

 private:
  const std::shared_future<void> released_;
};

// A queue over a CPU device, with host and device memory to copy between.
class CopyQueueTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 * kChunk;

  void Start(CopyQueueOptions options) {
    options.chunks.bytes = kChunk;
    direction_ = options.direction;
    queue_ = *CopyQueue::Create(*device_, options);
  }

  std::future<absl::Status> Copy(CopyPriority priority, uint64_t offset,
                                 uint64_t bytes,
                                 std::unique_ptr<Event> after = nullptr) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    CopyRequest request;
    request.priority = priority;
    request.purpose = priority == CopyPriority::kBulk
                          ? wire::Purpose::kWeights
                          : wire::Purpose::kActivations;
    const bool up = direction_ == wire::Direction::kH2D;
    request.to = (up ? buffer_->data() : host_.data()) + offset;
    request.from = (up ? host_.data() : buffer_->data()) + offset;
    request.bytes = bytes;
    request.after = std::move(after);
    request.stats = &stats_;
    request.abandoned = &abandoned_;
    request.done = [promise](absl::Status status) {
      promise->set_value(std::move(status));
    };
    EXPECT_TRUE(queue_->Enqueue(std::move(request)).ok());
    return promise->get_future();
  }

  // A bulk copy whose first chunk is under way until Release.
  std::future<absl::Status> HeldBulk() {
    auto bulk = Copy(CopyPriority::kBulk, 0, kBytes,
                     std::make_unique<HeldEvent>(release_.get_future()));
    while (queue_->counters().bulk_chunks == 0) std::this_thread::yield();
    return bulk;
  }
  void Release() { release_.set_value(); }

  std::unique_ptr<Device> device_ = NewCpuDevice(1 << 20);
  std::unique_ptr<DeviceBuffer> buffer_ = *device_->Allocate(kBytes, "test");
  std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
  CopyStats stats_;
  std::atomic<bool> abandoned_{false};
  std::promise<void> release_;
  wire::Direction direction_ = wire::Direction::kH2D;
  std::unique_ptr<CopyQueue> queue_;
};

TEST_F(CopyQueueTest, CopiesEveryByteBothWaysAndCountsThem) {
  for (size_t i = 0; i < host_.size(); ++i) {
    host_[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  const std::vector<std::byte> source = host_;
  Start({.direction = wire::Direction::kH2D});
  ASSERT_TRUE(Copy(CopyPriority::kBulk, 0, kBytes - 100).get().ok());
  ASSERT_TRUE(Copy(CopyPriority::kActivation, kBytes - 100, 100).get().ok());
  EXPECT_EQ(queue_->counters().bulk_chunks, 64u);
  EXPECT_EQ(queue_->counters().activations, 1u);
  std::fill(host_.begin(), host_.end(), std::byte{0});
  Start({.direction = wire::Direction::kD2H});
  ASSERT_TRUE(Copy(CopyPriority::kBulk, 0, kBytes).get().ok());
  EXPECT_EQ(host_, source);
  EXPECT_EQ(stats_.bytes[0][0], kBytes - 100);
  EXPECT_EQ(stats_.bytes[0][2], 100u);
  EXPECT_EQ(stats_.bytes[1][0], kBytes);
  EXPECT_EQ(stats_.bytes[1][2], 0u);
  EXPECT_GT(stats_.busy_ns[0], 0);
  EXPECT_GT(stats_.busy_ns[1], 0);
}

TEST_F(CopyQueueTest, NoChunkHasBytesOfTwoPiecesOfHostMemory) {
  for (const wire::Direction direction :
       {wire::Direction::kH2D, wire::Direction::kD2H}) {
    CopyQueueOptions options;
    options.direction = direction;
    options.host_pieces = {host_.data() - 100, 3 * kChunk / 2};
    Start(options);
    EXPECT_TRUE(Copy(CopyPriority::kBulk, 50, 3 * kChunk).get().ok());
    // Pieces end at 6044, 12188: 4096 + 1898 + 4096 + 2048 + 150.
    EXPECT_EQ(queue_->counters().bulk_chunks, 5u);
    EXPECT_TRUE(Copy(CopyPriority::kActivation, 0, 3 * kChunk).get().ok());
    EXPECT_EQ(queue_->counters().activations, 1u);
    EXPECT_EQ(
        queue_->counters().bytes[static_cast<int>(wire::Purpose::kActivations)],
        3 * kChunk);
  }
}

TEST_F(CopyQueueTest, KeepsIntervalsOnlyIfAsked) {
  Start({});
  ASSERT_TRUE(Copy(CopyPriority::kBulk, 0, kBytes).get().ok());
  EXPECT_TRUE(stats_.intervals[0].empty());
  stats_.keep_intervals = true;
  ASSERT_TRUE(Copy(CopyPriority::kBulk, 0, 3 * kChunk).get().ok());
  ASSERT_TRUE(Copy(CopyPriority::kActivation, 0, 100).get().ok());
  ASSERT_EQ(stats_.intervals[0].size(), 2u);  // chunks in a row are one
  const wire::CopyInterval& weights = stats_.intervals[0][0];
  EXPECT_EQ(weights.bytes, 3 * kChunk);
  EXPECT_EQ(weights.purpose, wire::Purpose::kWeights);
  EXPECT_EQ(weights.direction, wire::Direction::kH2D);
  EXPECT_GT(weights.ended_ns, weights.started_ns);
  EXPECT_GE(stats_.intervals[0][1].started_ns, weights.ended_ns);
  EXPECT_EQ(stats_.intervals[0][1].bytes, 100u);
  EXPECT_TRUE(stats_.intervals[1].empty());
}

TEST_F(CopyQueueTest, AnActivationCutsTheIntervalOfABulkCopy) {
  Start({.direction = wire::Direction::kD2H});
  stats_.keep_intervals = true;
  auto bulk = HeldBulk();
  auto activation = Copy(CopyPriority::kActivation, 0, 100);
  Release();
  ASSERT_TRUE(bulk.get().ok());
  ASSERT_TRUE(activation.get().ok());
  const auto& kept = stats_.intervals[1];
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].bytes, kChunk);
  EXPECT_EQ(kept[1].purpose, wire::Purpose::kActivations);
  EXPECT_EQ(kept[2].bytes, kBytes - kChunk);
  EXPECT_LE(kept[0].ended_ns, kept[1].started_ns);
  EXPECT_LE(kept[1].ended_ns, kept[2].started_ns);
}

TEST_F(CopyQueueTest, IntervalsBeyondTheLimitAreCounted) {
  Start({});
  stats_.keep_intervals = true;
  for (size_t i = 0; i < wire::kMaxTracedCopies + 2; ++i) {
    ASSERT_TRUE(Copy(CopyPriority::kActivation, 0, 4).get().ok());
  }
  ASSERT_TRUE(Copy(CopyPriority::kBulk, 0, kBytes).get().ok());
  EXPECT_EQ(stats_.intervals[0].size(), wire::kMaxTracedCopies);
  EXPECT_EQ(stats_.intervals[0].back().bytes, 4u);
  EXPECT_EQ(stats_.intervals_left_out[0], 3u);
}

class CopyPriorityTest : public CopyQueueTest,
                         public testing::WithParamInterface<wire::Direction> {};

TEST_P(CopyPriorityTest, AnActivationWaitsForTheChunkUnderWayOnly) {
  Start({.direction = GetParam()});
  auto bulk = HeldBulk();
  auto more = Copy(CopyPriority::kBulk, 0, kBytes);
  auto first = Copy(CopyPriority::kActivation, 0, 64);
  auto second = Copy(CopyPriority::kActivation, 64, 64);
  Release();
  EXPECT_TRUE(first.get().ok() && second.get().ok() && more.get().ok());
  const CopyCounters counters = queue_->counters();
  EXPECT_EQ(counters.bulk_chunks, 128u);
  EXPECT_EQ(counters.most_bulk_chunks_awaited, 1u);
  EXPECT_GT(counters.longest_activation_wait_ns, 0);
  EXPECT_EQ(stats_.longest_activation_wait_ns,
            counters.longest_activation_wait_ns);
}

TEST_P(CopyPriorityTest, NorForMoreThanOneChunkOfAThrottledLink) {
  Start({.direction = GetParam(), .link_gbps = 0.2});
  auto bulk = Copy(CopyPriority::kBulk, 0, kBytes);
  for (int i = 0; i < 8 || queue_->counters().most_bulk_chunks_awaited == 0;
       ++i) {
    if (bulk.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      bulk = Copy(CopyPriority::kBulk, 0, kBytes);
    }
    EXPECT_TRUE(Copy(CopyPriority::kActivation, 0, 64).get().ok());
  }
  EXPECT_EQ(queue_->counters().most_bulk_chunks_awaited, 1u);
}

INSTANTIATE_TEST_SUITE_P(BothWays, CopyPriorityTest,
                         testing::Values(wire::Direction::kH2D,
                                         wire::Direction::kD2H));

TEST_F(CopyQueueTest, CopiesOfOnePriorityStayInOrder) {
  Start({});
  std::vector<std::future<absl::Status>> copies;
  for (int i = 0; i < 50; ++i) {
    copies.push_back(Copy(CopyPriority::kActivation, 0, 64));
  }
  copies.back().wait();
  for (auto& copy : copies) {
    EXPECT_EQ(copy.wait_for(std::chrono::seconds(0)),
              std::future_status::ready);
  }
}

TEST_F(CopyQueueTest, AnAbandonedCopyEndsCancelledAndTouchesNothingMore) {
  Start({});
  auto running = HeldBulk();
  auto waiting = Copy(CopyPriority::kBulk, 0, kBytes);
  abandoned_ = true;
  Release();
  EXPECT_TRUE(absl::IsCancelled(running.get()));
  EXPECT_TRUE(absl::IsCancelled(waiting.get()));
  EXPECT_EQ(queue_->counters().bulk_chunks, 1u);
}

TEST_F(CopyQueueTest, DestructionCancelsWhatIsQueued) {
  Start({.link_gbps = 1e-6});  // the copy would take half an hour
  auto running = Copy(CopyPriority::kBulk, 0, kBytes);
  auto waiting = Copy(CopyPriority::kActivation, 0, 64);
  queue_.reset();
  EXPECT_TRUE(absl::IsCancelled(running.get()));
  const absl::Status status = waiting.get();
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status));
}

TEST_F(CopyQueueTest, AFullQueueRefuses) {
  Start({});
  auto running = HeldBulk();
  absl::Status status;
  size_t taken = 0;
  while (taken <= kMaxQueuedCopies && status.ok()) {
    CopyRequest one;
    one.to = buffer_->data();
    one.from = host_.data();
    one.bytes = 1;
    one.priority = CopyPriority::kBulk;
    one.purpose = wire::Purpose::kOther;
    one.stats = &stats_;
    one.done = [](absl::Status) {};
    status = queue_->Enqueue(std::move(one));
    if (status.ok()) ++taken;
  }
  Release();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("16384"), std::string::npos);
}

TEST_F(CopyQueueTest, OptionsAreChecked) {
  for (const CopyChunks& chunks :
       {CopyChunks{.bytes = 0}, CopyChunks{.in_flight = 0}}) {
    EXPECT_EQ(CopyQueue::Create(*device_, {.chunks = chunks}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(CopyQueue::Create(*device_, {.link_gbps = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A link that has carried a copy when the test says so, in order.
class Link {
 public:
  uint64_t Begin() {
    MutexLock lock(mutex_);
    return ++begun_;
  }
  absl::Status WaitFor(uint64_t number) {
    MutexLock lock(mutex_);
    while (carried_ < number) wake_.Wait(mutex_);
    return number == broken_ ? absl::AbortedError("the link broke")
                             : absl::OkStatus();
  }
  void Carry(uint64_t copies) {
    {
      MutexLock lock(mutex_);
      carried_ += copies;
    }
    wake_.NotifyAll();
  }
  void BreakAt(uint64_t number) {
    MutexLock lock(mutex_);
    broken_ = number;
  }

 private:
  Mutex mutex_;
  CondVar wake_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t carried_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t broken_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LinkEvent : public Event {
 public:
  LinkEvent(Link& link, uint64_t number) : link_(link), number_(number) {}
  absl::Status Wait() override { return link_.WaitFor(number_); }

 private:
  Link& link_;
  const uint64_t number_;
};

class LinkStream : public Stream {
 public:
  explicit LinkStream(Link& link) : link_(link) {}
  absl::Status CopyToDevice(std::byte*, const std::byte*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyToHost(std::byte*, const std::byte*, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyOnDevice(std::byte*, const std::byte*, uint64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status AddFloats(float*, const float*, int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status ZeroFloats(float*, int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status RoundFloats(std::byte*, const float*, int64_t, DType) override {
    return absl::UnimplementedError("");
  }
  absl::Status WidenFloats(float*, const std::byte*, int64_t, DType) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    return std::make_unique<LinkEvent>(link_, link_.Begin());
  }
  absl::StatusOr<std::unique_ptr<TimeMark>> MarkTime() override {
    return absl::UnimplementedError("");
  }
  absl::Status BreakDevice() override { return absl::UnimplementedError(""); }
  NativeStream native() const override { return {}; }

 private:
  Link& link_;
};

class LinkDevice : public Device {
 public:
  explicit LinkDevice(Link& link) : link_(link) {}
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    return memory_->Allocate(bytes, what);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<LinkStream>(link_);
  }
  DeviceMemory memory() const override { return memory_->memory(); }
  uint64_t TakePeak() override { return memory_->TakePeak(); }
  CopyChunks copy_chunks() const override { return {.in_flight = 3}; }

 private:
  Link& link_;
  const std::unique_ptr<Device> memory_ = NewCpuDevice(1 << 20);
};

// Three chunks are in flight where the link allows it.
class CopiesInFlightTest : public CopyQueueTest {
 protected:
  CopiesInFlightTest() {
    buffer_.reset();
    device_ = std::make_unique<LinkDevice>(link_);
    buffer_ = *device_->Allocate(kBytes, "test");
    Start({.chunks = device_->copy_chunks()});
  }
  ~CopiesInFlightTest() override {
    link_.Carry(1'000'000);
    queue_.reset();
  }
  void AwaitBulkChunks(uint64_t count) {
    while (queue_->counters().bulk_chunks < count) std::this_thread::yield();
  }
  static bool Done(const std::future<absl::Status>& copy) {
    return copy.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  Link link_;
};

TEST_F(CopiesInFlightTest, AsManyAsAllowedAndEachOnceTheFirstIsThrough) {
  auto bulk = Copy(CopyPriority::kBulk, 0, 6 * kChunk);
  AwaitBulkChunks(3);
  for (uint64_t begun = 4; begun <= 6; ++begun) {
    EXPECT_EQ(queue_->counters().bulk_chunks, begun - 1);
    link_.Carry(1);
    AwaitBulkChunks(begun);
  }
  link_.Carry(2);
  EXPECT_FALSE(Done(bulk));
  link_.Carry(1);
  EXPECT_TRUE(bulk.get().ok());
}

TEST_F(CopiesInFlightTest, AnActivationStandsBehindThemAndNoOther) {
  auto bulk = Copy(CopyPriority::kBulk, 0, kBytes);
  AwaitBulkChunks(3);
  auto activation = Copy(CopyPriority::kActivation, 0, 64);
  link_.Carry(4);
  EXPECT_TRUE(activation.get().ok());
  EXPECT_EQ(queue_->counters().most_bulk_chunks_awaited, 3u);
  link_.Carry(kBytes / kChunk);
  EXPECT_TRUE(bulk.get().ok());
}

// Whoever gave the memory may use it again once he is told.
TEST_F(CopiesInFlightTest, AnAbandonedCopyEndsAfterItsChunks) {
  auto bulk = Copy(CopyPriority::kBulk, 0, kBytes);
  AwaitBulkChunks(3);
  // The queue has dropped the rest once this one's chunk is begun.
  CopyRequest next;
  next.priority = CopyPriority::kBulk;
  next.to = buffer_->data();
  next.from = host_.data();
  next.bytes = kChunk;
  next.stats = &stats_;
  next.done = [](const absl::Status&) {};
  ASSERT_TRUE(queue_->Enqueue(std::move(next)).ok());
  abandoned_ = true;
  link_.Carry(1);
  AwaitBulkChunks(4);
  EXPECT_FALSE(Done(bulk));
  link_.Carry(2);
  EXPECT_TRUE(absl::IsCancelled(bulk.get()));
}

TEST_F(CopiesInFlightTest, TheFirstErrorIsToldOnceTheOthersAreThrough) {
  link_.BreakAt(2);
  auto bulk = Copy(CopyPriority::kBulk, 0, kBytes);
  auto next = Copy(CopyPriority::kBulk, 0, kChunk);
  AwaitBulkChunks(3);
  link_.Carry(2);
  AwaitBulkChunks(5);  // the fourth of `bulk`, that of `next`
  EXPECT_FALSE(Done(bulk));
  link_.Carry(2);
  EXPECT_TRUE(absl::IsAborted(bulk.get()));
  link_.Carry(1);
  EXPECT_TRUE(next.get().ok());
}

// A wait for what a copy comes after would hold up those in flight.
TEST_F(CopiesInFlightTest, NothingIsInFlightWhileACopyWaitsForItsEvent) {
  auto first = Copy(CopyPriority::kBulk, 0, kChunk);
  auto second =
      Copy(CopyPriority::kBulk, 0, kChunk,
           std::make_unique<HeldEvent>(release_.get_future().share()));
  AwaitBulkChunks(1);
  link_.Carry(1);
  EXPECT_TRUE(first.get().ok());
  Release();
  link_.Carry(1);
  EXPECT_TRUE(second.get().ok());
}

TEST_F(CopiesInFlightTest, DestructionWaitsForThem) {
  // More than the link carries before the queue knows that it is to end; the
  // link touches no memory.
  auto bulk = Copy(CopyPriority::kBulk, 0, uint64_t{1} << 40);
  AwaitBulkChunks(3);
  std::atomic<bool> ended = false;
  std::thread ending([&] {
    queue_.reset();
    ended = true;
  });
  EXPECT_FALSE(ended || Done(bulk));
  while (!ended) {
    link_.Carry(1);
    std::this_thread::yield();
  }
  ending.join();
  EXPECT_TRUE(absl::IsCancelled(bulk.get()));
}

}  // namespace
}  // namespace roundhouse::worker
