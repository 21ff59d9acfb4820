#include "worker/host/host_worker.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/host/reduce_reference.h"
#include "worker/host/test_job.h"
#include "worker/host/torch_threads.h"
#include "worker/model/adamw.h"

namespace roundhouse::worker {
namespace {

constexpr int kIndex = 1;

// A host worker on a thread of this process.
class HostWorkerThread {
 public:
  HostWorkerThread(TestJob& job, int threads) {
    auto ends = wire::Channel::Pair();
    ours_ = std::move(ends->first);
    theirs_ = std::move(ends->second);
    daemon_ = std::make_unique<TestDaemon>(*ours_, job.arena(), kIndex);
    thread_ = std::thread([this, &job, threads] {
      result_ = RunHostWorker({*theirs_, job.arena(), kIndex, threads});
      theirs_.reset();
    });
  }
  ~HostWorkerThread() {
    if (!thread_.joinable()) return;
    EXPECT_TRUE(Stop().ok());
  }

  void Configure(TestJob& job) {
    ASSERT_TRUE(
        daemon_->Call(wire::ConfigureJob{TestJob::kJob, job.layout_offset()})
            .ok());
  }
  absl::StatusOr<wire::HostOpDone> Do(const wire::HostOp& op) {
    absl::StatusOr<wire::Body> answer = daemon_->Call(op);
    if (!answer.ok()) return answer.status();
    return std::get<wire::HostOpDone>(*answer);
  }
  TestDaemon& daemon() { return *daemon_; }
  absl::Status Stop() {
    EXPECT_TRUE(daemon_->Send(wire::Stop{}).ok());
    thread_.join();
    return result_;
  }
  absl::Status CloseOurEnd() {
    ours_.reset();
    thread_.join();
    return result_;
  }

 private:
  std::unique_ptr<wire::Channel> ours_;
  std::unique_ptr<wire::Channel> theirs_;
  std::unique_ptr<TestDaemon> daemon_;
  absl::Status result_;
  std::thread thread_;
};

wire::HostOp Op(HostOpKind kind, uint32_t unit, uint64_t operation) {
  wire::HostOp op;
  op.job = TestJob::kJob;
  op.operation = operation;
  op.kind = kind;
  op.unit = unit;
  return op;
}

// dtype, groups, tied, threads
using ReduceCase = std::tuple<DType, int, bool, int>;

class ReduceTest : public testing::TestWithParam<ReduceCase> {
 protected:
  // Expects the sum of the embedding.
  static void ExpectSum(TestJob& job, const ReduceReference& reference) {
    const uint64_t elements = job.parameter(0).element_count;
    const float* sum = job.Fp32(job.unit(0).grad_sum_offset, elements);
    for (uint64_t i = 0; i < elements; ++i) {
      ASSERT_EQ(sum[i], reference.sum()[i]) << "at " << i;
    }
  }
};

TEST_P(ReduceTest, EmbeddingAddsInTheJobsOrderOverRounds) {
  const auto [dtype, groups, tied, threads] = GetParam();
  TestJob job({.dtype = dtype, .seed = static_cast<uint64_t>(groups)});
  HostWorkerThread worker(job, threads);
  worker.Configure(job);
  ReduceReference reference(job, 0);
  for (uint64_t r = 0; r < 3; ++r) {
    wire::HostOp op = Op(HostOpKind::kReduce, 0, r + 1);
    op.sum_write = r > 0 ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
    op.want_norm = r == 2;
    const Round round = MakeRound(job, groups, tied, true, &op);
    reference.Add(round, groups, tied);
    const auto done = worker.Do(op);
    ASSERT_TRUE(done.ok()) << done.status();
    SCOPED_TRACE(r);
    ExpectSum(job, reference);
    EXPECT_EQ(done->norm_squared, r == 2 ? reference.NormSquared() : 0.0);
    EXPECT_LE(done->started_ns, done->ended_ns);
  }
}

// As the dispatcher sends them where the head's part is there long before.
TEST_P(ReduceTest, TheHeadsPartAndTheRowsMayComeOneAfterTheOther) {
  const auto [dtype, groups, tied, threads] = GetParam();
  if (!tied) GTEST_SKIP() << "there is one part";
  // Most of the vocabulary has no token: chunks without any are left alone.
  TestJob job(
      {.dtype = dtype, .vocab = 3000, .seed = static_cast<uint64_t>(groups)});
  HostWorkerThread worker(job, threads);
  worker.Configure(job);
  ReduceReference reference(job, 0);
  for (uint64_t r = 0; r < 3; ++r) {
    wire::HostOp rows = Op(HostOpKind::kReduce, 0, 2 * r + 2);
    rows.sum_write = wire::SumWrite::kAdd;
    rows.want_norm = r == 2;
    rows.keep_partials = true;
    const Round round = MakeRound(job, groups, tied, true, &rows, 600);
    wire::HostOp head = Op(HostOpKind::kReduce, 0, 2 * r + 1);
    head.sum_write = r > 0 ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
    head.want_norm = r == 2;
    head.total_groups = rows.total_groups;
    head.contributions = std::exchange(rows.contributions, {});
    reference.Add(round, groups, tied);
    ASSERT_TRUE(worker.Do(head).ok());
    const auto done = worker.Do(rows);
    ASSERT_TRUE(done.ok()) << done.status();
    SCOPED_TRACE(r);
    ExpectSum(job, reference);
    EXPECT_EQ(done->norm_squared, r == 2 ? reference.NormSquared() : 0.0);
  }
}

TEST(HostWorkerTest, PartialsAreKeptOnlyUnderRows) {
  TestJob job({});
  HostWorkerThread worker(job, 1);
  worker.Configure(job);
  wire::HostOp op = Op(HostOpKind::kReduce, 0, 1);
  MakeRound(job, 2, true, true, &op);
  op.sum_write = wire::SumWrite::kAdd;
  op.keep_partials = true;
  const auto refused = worker.Do(op);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("keep_partials"));
}

INSTANTIATE_TEST_SUITE_P(Cases, ReduceTest,
                         testing::Values(ReduceCase{DType::kF32, 1, false, 1},
                                         ReduceCase{DType::kF32, 2, true, 2},
                                         ReduceCase{DType::kF32, 3, true, 1},
                                         ReduceCase{DType::kBF16, 5, false, 4},
                                         ReduceCase{DType::kBF16, 6, true, 3},
                                         ReduceCase{DType::kF16, 7, true, 2},
                                         ReduceCase{DType::kF32, 8, false, 2}));

TEST(HostWorkerTest, ALayersReduceAddsSubtreesUpTheTree) {
  for (uint32_t groups : {1u, 2u, 3u, 5u, 7u}) {
    TestJob job({.seed = groups});
    HostWorkerThread worker(job, 2);
    worker.Configure(job);
    ReduceReference reference(job, 1);
    for (uint64_t r = 0; r < 2; ++r) {
      wire::HostOp op = Op(HostOpKind::kReduce, 1, r + 1);
      op.sum_write = r > 0 ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
      op.want_norm = true;
      const Round round = MakeRound(job, groups, true, false, &op);
      // The daemon may list them in any order.
      std::swap(op.contributions.front(), op.contributions.back());
      reference.Add(round, groups, true);
      const auto done = worker.Do(op);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->norm_squared, reference.NormSquared());
    }
    const wire::UnitLayout& u = job.unit(1);
    const float* sum = job.Fp32(u.grad_sum_offset, u.element_count);
    for (uint32_t p = 0; p < u.parameter_count; ++p) {
      const wire::ParameterLayout& parameter =
          job.parameter(u.first_parameter + p);
      for (uint64_t i = 0; i < parameter.element_count; ++i) {
        const uint64_t at = parameter.unit_offset_elements + i;
        ASSERT_EQ(sum[at], reference.sum()[at]) << at;
      }
    }
  }
}

// The op's contributions, rounded to `dtype`; their buffers hold the rounded
// values in fp32 from then on.
wire::HostOp Rounded(TestJob& job, const wire::HostOp& op, DType dtype) {
  wire::HostOp rounded = op;
  rounded.contribution_dtype = dtype;
  for (wire::HostContribution& one : rounded.contributions) {
    const uint64_t elements = one.buffer.bytes / sizeof(float);
    float* const values = job.Fp32(one.buffer.offset, elements);
    one.buffer = job.Allocate(elements * DTypeBytes(dtype));
    FromF32(dtype, values, job.arena().Bytes(one.buffer), elements);
    ToF32(dtype, job.arena().Bytes(one.buffer), values, elements);
  }
  return rounded;
}

// dtype, groups, unit
using RoundedCase = std::tuple<DType, uint32_t, uint32_t>;

class RoundedReduceTest : public testing::TestWithParam<RoundedCase> {};

TEST_P(RoundedReduceTest, AddsTheirValuesInFp32) {
  const auto [dtype, groups, unit] = GetParam();
  TestJob job({.dtype = dtype, .seed = 17});
  HostWorkerThread worker(job, 3);
  worker.Configure(job);
  const wire::UnitLayout& u = job.unit(unit);
  const wire::BufferRef sum = {u.grad_sum_offset,
                               u.element_count * sizeof(float)};
  uint64_t operation = 0;
  for (const uint32_t add : {0u, 1u}) {
    wire::HostOp wide = Op(HostOpKind::kReduce, unit, ++operation);
    wide.want_norm = true;
    wide.sum_write = add ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
    MakeRound(job, groups, true, unit == 0, &wide);
    wire::HostOp rounded = Rounded(job, wide, dtype);
    rounded.operation = ++operation;
    const std::string before = job.Bytes(sum);
    const auto wanted = worker.Do(wide);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const std::string after = job.State();
    std::memcpy(job.arena().Bytes(sum), before.data(), sum.bytes);
    const auto found = worker.Do(rounded);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(job.State() == after) << "add_to_sum " << add;
    EXPECT_EQ(found->norm_squared, wanted->norm_squared);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RoundedReduceTest,
    testing::Combine(testing::Values(DType::kBF16, DType::kF16),
                     testing::Values(1u, 2u, 7u), testing::Values(0u, 1u)));

// As a step's whose gradients overflow in fp16: its norm is not finite.
TEST(HostWorkerTest, AnInfiniteContributionMakesTheNormInfinite) {
  TestJob job({.dtype = DType::kF16});
  HostWorkerThread worker(job, 1);
  worker.Configure(job);
  wire::HostOp op = Op(HostOpKind::kReduce, 1, 1);
  op.want_norm = true;
  MakeRound(job, 1, true, false, &op);
  // The largest fp16 is 65504.
  *job.Fp32(op.contributions[0].buffer.offset, 1) = 65519.0f;
  const auto largest = worker.Do(Rounded(job, op, DType::kF16));
  EXPECT_TRUE(std::isfinite(largest->norm_squared));
  *job.Fp32(op.contributions[0].buffer.offset, 1) = 65520.0f;
  op.operation = 2;
  const auto overflown = worker.Do(Rounded(job, op, DType::kF16));
  EXPECT_TRUE(std::isinf(overflown->norm_squared));
}

TEST(HostWorkerTest, TooFewBytesNameTheDTypeOfTheContribution) {
  TestJob job({.dtype = DType::kBF16});
  HostWorkerThread worker(job, 1);
  worker.Configure(job);
  wire::HostOp op = Op(HostOpKind::kReduce, 1, 1);
  MakeRound(job, 1, true, false, &op);
  op = Rounded(job, op, DType::kBF16);
  op.contribution_dtype = DType::kF32;
  const auto refused = worker.Do(op);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("fp32 elements"));
}

TEST(HostWorkerTest, TheTreesOrderMattersForTheseNumbers) {
  TestJob job({});
  wire::HostOp op = Op(HostOpKind::kReduce, 1, 1);
  const Round round = MakeRound(job, 4, true, false, &op);
  std::vector<Row> leaves(round.uses.begin(), round.uses.end());
  const Row tree = TreeSum(leaves, 0, 4);
  size_t differing = 0;
  for (size_t i = 0; i < tree->size(); ++i) {
    const float left_to_right = round.uses[0][i] + round.uses[1][i] +
                                round.uses[2][i] + round.uses[3][i];
    if (left_to_right != (*tree)[i]) ++differing;
  }
  EXPECT_GT(differing, tree->size() / 100);
}

wire::HostOp UpdateOp(TestJob& job, uint32_t unit, uint64_t step) {
  wire::HostOp op = Op(HostOpKind::kUpdate, unit, step);
  op.weights = job.weights(unit);
  op.version = {job.unit(unit).version_word_offset, step};
  op.step = step;
  op.learning_rate = 1e-2 / static_cast<double>(step);
  op.beta1 = 0.9;
  op.beta2 = 0.95;
  op.epsilon = 1e-8;
  op.weight_decay = 0.1;
  return op;
}

// Two updates by the fused kernel, parameter by parameter in chunks, without a
// worker.
void ReferenceUpdates(TestJob& job, const std::vector<float>& scales) {
  UseOneTorchThread();
  const wire::UnitLayout& u = job.unit(1);
  const DType dtype = u.dtype;
  for (uint64_t s = 1; s <= scales.size(); ++s) {
    const wire::HostOp op = UpdateOp(job, 1, s);
    const AdamWStep step = {{op.beta1, op.beta2, op.epsilon, op.weight_decay},
                            op.learning_rate,
                            static_cast<int64_t>(s)};
    for (uint32_t p = 0; p < u.parameter_count; ++p) {
      const wire::ParameterLayout& parameter =
          job.parameter(u.first_parameter + p);
      for (uint64_t i = 0; i < parameter.element_count; i += 32768) {
        const uint64_t count =
            std::min<uint64_t>(32768, parameter.element_count - i);
        const uint64_t at = parameter.unit_offset_elements + i;
        const auto tensor = [&](uint64_t offset) {
          return job.Fp32(offset, u.element_count) + at;
        };
        std::vector<float> gradient(tensor(u.grad_sum_offset),
                                    tensor(u.grad_sum_offset) + count);
        for (float& g : gradient) g *= scales[s - 1];
        ASSERT_TRUE(
            AdamWUpdate(step, {.gradient = gradient.data(),
                               .count = static_cast<int64_t>(count),
                               .master = tensor(u.master_offset),
                               .exp_avg = tensor(u.exp_avg_offset),
                               .exp_avg_sq = tensor(u.exp_avg_sq_offset),
                               .weight_decay = parameter.role != 1})
                .ok());
        FromF32(dtype, tensor(u.master_offset),
                job.arena().At<std::byte>(u.compute_offset) +
                    at * DTypeBytes(dtype),
                count);
      }
    }
  }
  job.arena().WordAt(u.version_word_offset).value = scales.size();
}

TEST(HostWorkerTest, UpdateEqualsTheFusedKernelForAnyThreadCount) {
  const std::vector<float> scales = {1.0f, 0.3f};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    TestJob want({.dtype = dtype});
    const wire::UnitLayout& u = want.unit(1);
    for (uint64_t i = 0; i < u.element_count; ++i) {
      want.Fp32(u.grad_sum_offset, u.element_count)[i] = want.RandomValue();
    }
    want.Save();
    ReferenceUpdates(want, scales);
    for (int threads : {1, 2, 5}) {
      TestJob got({.dtype = dtype});
      got.RestoreFrom(want);
      HostWorkerThread worker(got, threads);
      worker.Configure(got);
      for (uint64_t s = 1; s <= scales.size(); ++s) {
        wire::HostOp op = UpdateOp(got, 1, s);
        op.gradient_scale = scales[s - 1];
        const auto done = worker.Do(op);
        ASSERT_TRUE(done.ok()) << done.status();
      }
      EXPECT_TRUE(got.State() == want.State())
          << DTypeName(dtype) << " " << threads;
    }
  }
}

// Adapters are fp32 beside a bf16 model, which has no state to update.
TEST(HostWorkerTest, AdaptersUpdateInFp32AndFrozenUnitsAreRefused) {
  TestJob want({.dtype = DType::kBF16, .adapters = true});
  const wire::UnitLayout& u = want.unit(1);
  for (uint64_t i = 0; i < u.element_count; ++i) {
    want.Fp32(u.grad_sum_offset, u.element_count)[i] = want.RandomValue();
  }
  want.Save();
  ReferenceUpdates(want, {0.5f});
  TestJob got({.dtype = DType::kBF16, .adapters = true});
  got.RestoreFrom(want);
  HostWorkerThread worker(got, 2);
  worker.Configure(got);
  wire::HostOp op = UpdateOp(got, 1, 1);
  op.gradient_scale = 0.5f;
  EXPECT_TRUE(worker.Do(op).ok());
  EXPECT_TRUE(got.State() == want.State());
  // The compute copy is the master.
  const wire::UnitLayout& updated = got.unit(1);
  const uint64_t bytes = updated.element_count * sizeof(float);
  EXPECT_TRUE(got.Bytes({updated.compute_offset, bytes}) ==
              got.Bytes({updated.master_offset, bytes}));

  wire::HostOp reduce = Op(HostOpKind::kReduce, 0, 2);
  MakeRound(got, 4, true, true, &reduce);
  for (const wire::HostOp& frozen : {reduce, UpdateOp(got, 0, 3)}) {
    const absl::Status status = worker.Do(frozen).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_NE(std::string(status.message()).find("unit 0 of job 7 is frozen"),
              std::string::npos)
        << status;
  }
  EXPECT_TRUE(got.State() == want.State());
}

TEST(HostWorkerTest, AnOperationSentAgainChangesNothing) {
  TestJob job({});
  HostWorkerThread worker(job, 2);
  worker.Configure(job);
  wire::HostOp reduce = Op(HostOpKind::kReduce, 1, 1);
  reduce.sum_write = wire::SumWrite::kAdd;
  reduce.want_norm = true;
  MakeRound(job, 2, true, false, &reduce);
  const auto first = worker.Do(reduce);
  ASSERT_TRUE(first.ok()) << first.status();
  wire::HostOp update = UpdateOp(job, 1, 2);
  const std::string reduced = job.State();
  const auto again = worker.Do(reduce);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->norm_squared, first->norm_squared);
  EXPECT_TRUE(job.State() == reduced);
  ASSERT_TRUE(worker.Do(update).ok());
  const std::string updated = job.State();
  EXPECT_FALSE(updated == reduced);
  ASSERT_TRUE(worker.Do(update).ok());
  EXPECT_TRUE(job.State() == updated);
}

// A job whose optimizer is a step behind has weights twice.
TEST(HostWorkerTest, AnUpdateWritesTheWeightsThatItIsGiven) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    TestJob job({.dtype = dtype});
    HostWorkerThread worker(job, 2);
    worker.Configure(job);
    const wire::BufferRef first = job.weights(1);
    const std::string before(
        reinterpret_cast<const char*>(job.arena().Bytes(first)), first.bytes);
    wire::HostOp update = UpdateOp(job, 1, 1);
    update.weights = job.Allocate(first.bytes);
    ASSERT_TRUE(worker.Do(update).ok());
    EXPECT_EQ(
        std::memcmp(job.arena().Bytes(first), before.data(), before.size()), 0)
        << "the other copy is not written";
    std::vector<float> wanted(first.bytes / sizeof(float) + 1);
    ASSERT_TRUE(CastMaster(job.arena().At<float>(job.unit(1).master_offset,
                                                 job.unit(1).element_count),
                           static_cast<int64_t>(job.unit(1).element_count),
                           dtype, wanted.data())
                    .ok());
    const uint64_t size = DTypeBytes(dtype);
    for (uint32_t p = 0; p < job.unit(1).parameter_count; ++p) {
      const wire::ParameterLayout& parameter =
          job.parameter(job.unit(1).first_parameter + p);
      const uint64_t at = parameter.unit_offset_elements * size;
      EXPECT_EQ(
          std::memcmp(job.arena().Bytes(update.weights) + at,
                      reinterpret_cast<const std::byte*>(wanted.data()) + at,
                      parameter.element_count * size),
          0)
          << "parameter " << p;
    }
    update.operation = 2;
    update.weights.bytes -= 4;
    EXPECT_FALSE(worker.Do(update).ok());
  }
}

wire::HostOp GatherOp(TestJob& job, uint64_t version) {
  wire::HostOp op = Op(HostOpKind::kGather, 0, 1);
  op.weights = job.weights(0);
  op.version = {job.unit(0).version_word_offset, version};
  op.begun = {job.AllocateWord(), 7};
  const DType dtype = job.layout().dtype;
  const auto hidden = static_cast<uint64_t>(job.layout().model.hidden_size);
  for (uint32_t b = 0; b < 3; ++b) {
    wire::HostMicroBatch batch;
    batch.rows = 3;
    batch.row_tokens = 100;  // more than one block of rows
    batch.tokens = job.RandomTokens(300);
    batch.data = job.Allocate(300 * hidden * DTypeBytes(dtype));
    batch.word = {job.AllocateWord(), 5};
    op.micro_batches.push_back(batch);
  }
  return op;
}

TEST(HostWorkerTest, GatherCopiesRowsAndRaisesInOrder) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    TestJob job({.dtype = dtype});
    job.arena().WordAt(job.unit(0).version_word_offset).value = 3;
    HostWorkerThread worker(job, 3);
    worker.Configure(job);
    const wire::HostOp op = GatherOp(job, 3);
    // Raised already: its bytes belong to whoever reads them.
    job.arena().WordAt(op.micro_batches[1].word.offset).value = 5;
    ASSERT_TRUE(worker.Do(op).ok());
    EXPECT_EQ(job.arena().WordAt(op.begun.offset).value.load(), 7u);
    const uint64_t row_bytes =
        job.layout().model.hidden_size * DTypeBytes(dtype);
    for (size_t b = 0; b < 3; ++b) {
      const wire::HostMicroBatch& batch = op.micro_batches[b];
      EXPECT_EQ(job.arena().WordAt(batch.word.offset).value.load(), 5u);
      const auto* tokens = job.arena().At<int32_t>(batch.tokens.offset, 300);
      for (uint64_t t = 0; t < 300; ++t) {
        const uint64_t row = tokens[t] < 0 ? 0 : tokens[t];
        const std::string want =
            b == 1 ? std::string(row_bytes, '\0')
                   : job.Bytes({job.unit(0).compute_offset + row * row_bytes,
                                row_bytes});
        ASSERT_TRUE(job.Bytes({batch.data.offset + t * row_bytes, row_bytes}) ==
                    want)
            << b << " " << t;
      }
    }
  }
}

TEST(HostWorkerTest, GatherWaitsForTheVersion) {
  TestJob job({});
  HostWorkerThread worker(job, 1);
  worker.Configure(job);
  const wire::HostOp op = GatherOp(job, 3);
  const auto attempt = worker.daemon().Send(op);
  ASSERT_TRUE(attempt.ok());
  // A command behind it waits its turn, and shows that nothing was raised
  // before the version was.
  const auto behind = worker.daemon().Send(
      wire::ConfigureJob{TestJob::kJob, job.layout_offset()});
  ASSERT_TRUE(behind.ok());
  EXPECT_EQ(job.arena().WordAt(op.micro_batches[0].word.offset).value, 0u);
  wire::Raise(job.arena().WordAt(job.unit(0).version_word_offset), 3,
              job.arena().doorbells());
  EXPECT_TRUE(std::holds_alternative<wire::HostOpDone>(
      *worker.daemon().Answer(*attempt)));
  EXPECT_TRUE(std::holds_alternative<wire::JobConfigured>(
      *worker.daemon().Answer(*behind)));
  EXPECT_EQ(job.arena().WordAt(op.micro_batches[2].word.offset).value, 5u);
}

TEST(HostWorkerTest, StopAndTheDaemonsEndInterruptAWait) {
  TestJob job({});
  HostWorkerThread stopped(job, 1);
  stopped.Configure(job);
  ASSERT_TRUE(stopped.daemon().Send(GatherOp(job, 3)).ok());
  EXPECT_TRUE(stopped.Stop().ok());
  HostWorkerThread orphan(job, 1);
  orphan.Configure(job);
  ASSERT_TRUE(orphan.daemon().Send(GatherOp(job, 3)).ok());
  EXPECT_TRUE(absl::IsUnavailable(orphan.CloseOurEnd()));
}

class BadCommandTest : public testing::Test {
 protected:
  BadCommandTest() : job_({}), worker_(job_, 1) { worker_.Configure(job_); }

  void ExpectFailure(const wire::HostOp& op, absl::StatusCode code,
                     const std::string& text) {
    const absl::Status status = worker_.Do(op).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << status;
  }
  wire::HostOp GoodReduce(uint32_t unit) {
    wire::HostOp op = Op(HostOpKind::kReduce, unit, 1);
    MakeRound(job_, 4, true, unit == 0, &op);
    return op;
  }

  TestJob job_;
  HostWorkerThread worker_;
};

TEST_F(BadCommandTest, NamesWhatIsWrongAndGoesOn) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  wire::HostOp op = GoodReduce(1);
  op.job = 8;
  ExpectFailure(op, kPrecondition, "job 8 is not configured");
  op = GoodReduce(1);
  op.unit = 2;
  ExpectFailure(op, kInvalid, "unit 2");
  op = GoodReduce(1);
  op.contributions.pop_back();
  ExpectFailure(op, kInvalid, "of 4 groups");
  op = GoodReduce(1);
  op.contributions = {{0, 3, op.contributions[0].buffer},
                      {3, 1, op.contributions[0].buffer}};
  ExpectFailure(op, kInvalid, "groups [0, 3)");
  op = GoodReduce(1);
  op.contributions[0].buffer.bytes -= 4;
  ExpectFailure(op, kInvalid, "bytes for");
  op = GoodReduce(1);
  op.contributions.clear();
  ExpectFailure(op, kInvalid, "nothing to add");
  op = GoodReduce(0);
  std::swap(op.micro_batches.front(), op.micro_batches.back());
  ExpectFailure(op, kInvalid, "out of order");
  op = GoodReduce(0);
  job_.arena().At<int32_t>(op.micro_batches[2].tokens.offset, 30)[7] = 300;
  ExpectFailure(op, kInvalid, "micro-batch 2 position 7: token 300");
  op = GoodReduce(0);
  op.micro_batches[1].word = {job_.AllocateWord(), 1};
  ExpectFailure(op, kPrecondition, "micro-batch 1");
  op = GoodReduce(0);
  op.contributions.clear();
  op.unit = 1;
  ExpectFailure(op, kInvalid, "unit 1 has no embedding");
  op = UpdateOp(job_, 1, 1);
  op.step = 0;
  ExpectFailure(op, kInvalid, "step");
  EXPECT_TRUE(worker_.Do(GoodReduce(0)).ok());
  EXPECT_TRUE(worker_.Stop().ok());
}

TEST_F(BadCommandTest, RefusesALayoutItCannotTrust) {
  const auto configure = [&] {
    return worker_.daemon()
        .Call(wire::ConfigureJob{TestJob::kJob, job_.layout_offset()})
        .status();
  };
  job_.layout().version = 99;
  EXPECT_TRUE(absl::IsInvalidArgument(configure()));
  job_.layout().version = wire::kWireVersion;
  job_.layout().scratch_slot_bytes = 64;
  EXPECT_TRUE(absl::IsInvalidArgument(configure()));
  job_.layout().scratch_slot_bytes = 1 << 20;
  job_.unit(1).chunk_count += 1;
  EXPECT_TRUE(absl::IsInvalidArgument(configure()));
  job_.unit(1).chunk_count -= 1;
  job_.unit(1).dtype = DType::kBF16;
  EXPECT_TRUE(absl::IsInvalidArgument(configure()));
  job_.unit(1).dtype = DType::kF32;
  const uint64_t journal = std::exchange(job_.unit(1).journal_offset, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(configure()));
  job_.unit(1).journal_offset = journal;
  EXPECT_TRUE(configure().ok());
  ASSERT_TRUE(worker_.daemon().Send(wire::ReleaseJob{TestJob::kJob}).ok());
  ExpectFailure(GoodReduce(1), absl::StatusCode::kFailedPrecondition,
                "not configured");
  EXPECT_FALSE(worker_.daemon().Call(wire::FileOp{}).ok());
}

}  // namespace
}  // namespace roundhouse::worker
