#include "tests/fakes/fake_host.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/wire/channel.h"
#include "gtest/gtest.h"
#include "tests/fakes/test_clock.h"
#include "worker/slot/test_job.h"

namespace roundhouse::fakes {
namespace {

constexpr int kIndex = 1;

// A fake host worker in a thread, over a job of four layers.  Host memory moves
// a byte in a nanosecond.
class FakeHostTest : public testing::Test {
 protected:
  FakeHostTest() {
    auto ends = *wire::Channel::Pair();
    daemon_ = std::move(ends.first);
    worker_ = std::move(ends.second);
    thread_ = std::thread([this] {
      const worker::WorkerContext context{*worker_, job_.arena(), kIndex, 1};
      EXPECT_TRUE(
          RunFakeHostWorker(context, {.bytes_per_second = 1e9}, clock_).ok());
    });
  }
  ~FakeHostTest() override {
    Send(wire::Stop{});
    thread_.join();
  }

  void Configure() {
    Send(wire::ConfigureJob{worker::SlotTestJob::kJob, job_.layout_offset()});
    EXPECT_EQ(Next<wire::JobConfigured>().job, worker::SlotTestJob::kJob);
  }
  void Send(wire::Body body) {
    ASSERT_TRUE(daemon_->Send({++attempt_, std::move(body)}).ok());
  }
  // The next answer; a wrong one fails the test.
  template <typename Answer>
  Answer Next() {
    while (true) {
      const wire::Message message = *daemon_->Receive();
      if (const auto* found = std::get_if<Answer>(&message.body)) {
        return *found;
      }
      const bool other = !std::holds_alternative<wire::Hello>(message.body) &&
                         !std::holds_alternative<wire::Heartbeat>(message.body);
      EXPECT_FALSE(other) << "message " << message.body.index();
      if (other) return Answer();
    }
  }
  wire::WordRef NewWord() { return {job_.Allocate(64).offset, 7}; }
  bool Raised(const wire::WordRef& word) { return job_.WordValue(word) >= 7; }
  wire::HostOp NewOp(HostOpKind kind, uint32_t unit) {
    wire::HostOp op;
    op.job = worker::SlotTestJob::kJob;
    op.operation = ++operation_;
    op.kind = kind;
    op.unit = unit;
    return op;
  }
  uint64_t Elements(size_t unit) const {
    return static_cast<uint64_t>(job_.units()[unit].element_count);
  }
  int64_t TimeOf(const wire::HostOp& op) {
    Send(op);
    const auto done = Next<wire::HostOpDone>();
    EXPECT_EQ(done.operation, op.operation);
    EXPECT_EQ(done.norm_squared, 1);
    return done.ended_ns - done.started_ns;
  }

  worker::SlotTestJob job_{worker::SmallConfig(4, false),
                           {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2},
                           5};
  TestClock clock_;
  std::unique_ptr<wire::Channel> daemon_, worker_;
  std::thread thread_;
  uint64_t attempt_ = 0;
  uint64_t operation_ = 0;
};

TEST_F(FakeHostTest, GathersAfterTheVersionMicroBatchByMicroBatch) {
  Configure();
  wire::HostOp op = NewOp(HostOpKind::kGather, 0);
  op.version = NewWord();
  for (int m = 0; m < 2; ++m) {
    wire::HostMicroBatch& micro_batch = op.micro_batches.emplace_back();
    micro_batch.data = {job_.Allocate(500).offset, 500};
    micro_batch.word = NewWord();
  }
  Send(op);
  absl::SleepFor(absl::Milliseconds(20));  // time to go too early in
  EXPECT_FALSE(Raised(op.micro_batches[0].word));
  wire::Raise(job_.arena().WordAt(op.version.offset), 7,
              job_.arena().doorbells());
  const auto done = Next<wire::HostOpDone>();
  EXPECT_EQ(done.ended_ns - done.started_ns, 2 * 2 * 500);
  EXPECT_TRUE(Raised(op.micro_batches[0].word));
  EXPECT_TRUE(Raised(op.micro_batches[1].word));
  // A replay finds them raised.
  EXPECT_EQ(TimeOf(op), 2 * 2 * 500);
}

TEST_F(FakeHostTest, ReducesInTheTimeOfItsBytes) {
  Configure();
  wire::HostOp op = NewOp(HostOpKind::kReduce, 2);
  const uint64_t sum = Elements(2) * sizeof(float);
  op.contributions = {{0, 1, {64, sum}}, {1, 1, {64, sum}}};
  EXPECT_EQ(TimeOf(op), static_cast<int64_t>(3 * sum));
  op.sum_write = wire::SumWrite::kAdd;
  EXPECT_EQ(TimeOf(op), static_cast<int64_t>(4 * sum));
  op = NewOp(HostOpKind::kReduce, 0);
  op.micro_batches.resize(1);
  op.micro_batches[0].data = {64, 500};
  EXPECT_EQ(TimeOf(op), static_cast<int64_t>(Elements(0) * 4 + 500));
  op.sum_write = wire::SumWrite::kAdd;
  op.keep_partials = true;         // only rows that have tokens
  EXPECT_EQ(TimeOf(op), 3 * 500);  // fp32
}

TEST_F(FakeHostTest, AnUpdateRaisesTheVersion) {
  Configure();
  wire::HostOp op = NewOp(HostOpKind::kUpdate, 2);
  op.version = NewWord();
  EXPECT_EQ(TimeOf(op), static_cast<int64_t>(Elements(2) * 32));  // fp32
  EXPECT_TRUE(Raised(op.version));
  op.contributions = {{0, 1, {64, 500}}, {1, 1, {64, 500}}};
  EXPECT_EQ(TimeOf(op), static_cast<int64_t>(Elements(2) * 28 + 1000));
}

TEST_F(FakeHostTest, RefusesWhatItDoesNotKnow) {
  Send(NewOp(HostOpKind::kReduce, 0));
  EXPECT_NE(Next<wire::Failed>().text.find("is not configured"),
            std::string::npos);
  Configure();
  Send(NewOp(HostOpKind::kReduce, 99));
  EXPECT_NE(Next<wire::Failed>().text.find("unit 99"), std::string::npos);
  Send(wire::RunSlot{});
  EXPECT_NE(Next<wire::Failed>().text.find("not a command of the host worker"),
            std::string::npos);
  Send(wire::ReleaseJob{worker::SlotTestJob::kJob});
  Send(NewOp(HostOpKind::kReduce, 0));
  EXPECT_NE(Next<wire::Failed>().text.find("is not configured"),
            std::string::npos);
}

TEST_F(FakeHostTest, StopsWhileItWaits) {
  Configure();
  wire::HostOp op = NewOp(HostOpKind::kGather, 0);
  op.version = NewWord();
  Send(op);  // the destructor sends Stop
}

}  // namespace
}  // namespace roundhouse::fakes
