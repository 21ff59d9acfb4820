// The host worker dies at every named point, at every visit of it, and in
// seeded storms of deaths: its successors end with the undisturbed run's bits.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/reduction.h"
#include "gtest/gtest.h"
#include "worker/host/host_worker.h"
#include "worker/host/test_job.h"

namespace roundhouse::worker {
namespace {

constexpr int kIndex = 1;
constexpr uint32_t kGroups = 3;
constexpr uint32_t kPositions = 40;

struct Case {
  DType dtype;
  bool adapters;
  DType contributions = DType::kF32;
  bool one_pass = false;  // unit 1 keeps no sum
};

// One step of a small job as a list of operations.  With adapters the embedding
// is gathered from and nothing else: its version stays what it was.
class Step {
 public:
  explicit Step(const Case& which)
      : job_({.dtype = which.dtype, .adapters = which.adapters, .seed = 99}),
        first_trained_(which.adapters ? 1 : 0),
        one_pass_(which.one_pass),
        contributions_(which.contributions) {
    if (one_pass_) job_.unit(1).grad_sum_offset = 0;
    Gather(1, 1);
    for (uint32_t round = 0; round < 2; ++round) {
      for (uint32_t unit = first_trained_; unit < (one_pass_ ? 1 : 2); ++unit) {
        Reduce(unit, round);
      }
    }
    for (uint32_t unit = first_trained_; unit < 2; ++unit) UpdateUnit(unit);
    Gather(2, which.adapters ? 1 : 2);
    job_.arena().WordAt(job_.unit(0).version_word_offset).value = 1;
    job_.Save();
  }

  uint32_t trained_units() const { return 2 - first_trained_; }
  bool one_pass() const { return one_pass_; }

  TestJob& job() { return job_; }
  const std::vector<wire::HostOp>& ops() const { return ops_; }

  std::string State() {
    std::string state = job_.State();
    for (const wire::HostOp& op : ops_) {
      if (op.kind != HostOpKind::kGather) continue;
      for (const wire::HostMicroBatch& batch : op.micro_batches) {
        state += job_.Bytes(batch.data);
        state += job_.Bytes({batch.word.offset, sizeof(wire::Word)});
      }
    }
    return state;
  }

 private:
  wire::HostOp& Add(HostOpKind kind, uint32_t unit) {
    wire::HostOp op;
    op.job = TestJob::kJob;
    op.operation = ops_.size() + 1;
    op.kind = kind;
    op.unit = unit;
    op.total_groups = kGroups;
    ops_.push_back(op);
    return ops_.back();
  }

  wire::HostMicroBatch Batch(uint32_t group, int64_t vocab_end = 0) {
    const DType dtype = job_.layout().dtype;
    const uint64_t elements = kPositions * job_.layout().model.hidden_size;
    return {group,
            2,
            kPositions / 2,
            0,
            job_.RandomTokens(kPositions, vocab_end),
            job_.RandomValues(dtype, elements),
            {}};
  }

  void Gather(uint64_t pass, uint64_t version) {
    wire::HostOp& op = Add(HostOpKind::kGather, 0);
    op.weights = job_.weights(0);
    op.version = {job_.unit(0).version_word_offset, version};
    for (uint32_t group = 0; group < kGroups; ++group) {
      op.micro_batches.push_back(Batch(group));
      op.micro_batches.back().word = {job_.AllocateWord(), pass};
    }
  }

  void Reduce(uint32_t unit, uint32_t round) {
    wire::HostOp& op = Add(HostOpKind::kReduce, unit);
    op.sum_write = round > 0 ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
    op.want_norm = round > 0;
    Contribute(op);
    if (unit == 1) return;
    if (round > 0) {
      // The rows of this one come by themselves.
      wire::HostOp& rows = Add(HostOpKind::kReduce, unit);
      rows.sum_write = wire::SumWrite::kAdd;
      rows.want_norm = rows.keep_partials = true;
      AddBatches(rows, 90);
      return;
    }
    AddBatches(op);
  }

  void Contribute(wire::HostOp& op) {
    op.contribution_dtype = contributions_;
    for (const IndexRange range : {IndexRange{0, 2}, IndexRange{2, 3}}) {
      op.contributions.push_back(
          {static_cast<uint32_t>(range.begin),
           static_cast<uint32_t>(range.size()),
           job_.RandomValues(contributions_,
                             job_.unit(op.unit).element_count)});
    }
  }

  void AddBatches(wire::HostOp& op, int64_t vocab_end = 0) {
    for (uint32_t group = 0; group < kGroups; ++group) {
      op.micro_batches.push_back(Batch(group, vocab_end));
    }
  }

  void UpdateUnit(uint32_t unit) {
    wire::HostOp& op = Add(HostOpKind::kUpdate, unit);
    op.weights = job_.weights(unit);
    op.version = {job_.unit(unit).version_word_offset, 2};
    op.step = 1;
    op.learning_rate = 1e-2;
    op.beta1 = 0.9;
    op.beta2 = 0.99;
    op.epsilon = 1e-8;
    op.weight_decay = 0.1;
    op.gradient_scale = 0.75f;
    if (unit == 0 || !one_pass_) return;
    op.want_norm = true;
    Contribute(op);
  }

  TestJob job_;
  const uint32_t first_trained_;
  const bool one_pass_;
  const DType contributions_;
  std::vector<wire::HostOp> ops_;
};

// A host worker as a process of its own.
class Worker {
 public:
  Worker(TestJob& job, const std::string& kill_at, int threads) {
    auto ends = wire::Channel::Pair();
    channel_ = std::move(ends->first);
    std::unique_ptr<wire::Channel> theirs = std::move(ends->second);
    pid_ = fork();
    if (pid_ != 0) return;
    channel_.reset();
    const absl::Status armed = ArmKillPoint(kill_at);
    const absl::Status run =
        RunHostWorker({*theirs, job.arena(), kIndex, threads});
    _exit(armed.ok() && run.ok() ? 0 : 1);
  }
  ~Worker() {
    if (pid_ > 0) Reap();
  }

  wire::Channel& channel() { return *channel_; }

  // True when it died by SIGKILL; any other end but a clean one is a failure.
  bool Reap() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      return true;
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return false;
  }

 private:
  std::unique_ptr<wire::Channel> channel_;
  pid_t pid_ = -1;
};

// Which kill point each next worker is armed with; "" from then on.
using Arming = std::function<std::string()>;

struct Outcome {
  int kills = 0;
  std::string state;
  std::vector<double> norms;
};

// Sends operations [*next, ...) until the worker is gone or all are done.
void Converse(Step& step, TestDaemon& daemon, size_t* next, Outcome* outcome) {
  absl::StatusOr<wire::Body> configured = daemon.Call(
      wire::ConfigureJob{TestJob::kJob, step.job().layout_offset()});
  if (!configured.ok()) return;
  while (*next < step.ops().size()) {
    absl::StatusOr<wire::Body> answer = daemon.Call(step.ops()[*next]);
    if (!answer.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
      return;
    }
    outcome->norms.push_back(std::get<wire::HostOpDone>(*answer).norm_squared);
    ++*next;
  }
  // Armed after its last answer it may be gone already.
  (void)daemon.Send(wire::Stop{});
}

Outcome RunStep(Step& step, int threads, const Arming& arming) {
  step.job().Restore();
  Outcome outcome;
  size_t next = 0;
  while (next < step.ops().size()) {
    Worker worker(step.job(), arming(), threads);
    TestDaemon daemon(worker.channel(), step.job().arena(), kIndex);
    Converse(step, daemon, &next, &outcome);
    if (worker.Reap()) ++outcome.kills;
    if (testing::Test::HasFailure()) break;
  }
  outcome.state = step.State();
  return outcome;
}

Arming Once(const std::string& point) {
  auto left = std::make_shared<int>(1);
  return [left, point] { return (*left)-- > 0 ? point : std::string(); };
}

Outcome Undisturbed(Step& step) {
  return RunStep(step, 1, [] { return std::string(); });
}

struct Point {
  const char* name;
  int visits;  // of an undisturbed step with one thread
};

// Chunks: unit 0 has 2, unit 1 has 6; each trained unit is reduced twice, but
// for unit 1 in one pass, and updated once.
std::vector<Point> Points(const Step& step) {
  const bool both = step.trained_units() == 2;
  // Only one of two chunks has any of the rows that come by themselves.
  const int chunks = step.one_pass() ? 13 : both ? 25 : 18;
  const int operations = step.one_pass() ? 7 : both ? 9 : 5;
  return {{"host.gather.copied", 6},
          {"host.gather.raised", 6},
          {"host.chunk.computed", chunks},
          {"host.chunk.ready", chunks},
          {"host.chunk.copied", chunks},
          {"host.chunk.done", chunks},
          {"host.unit.published", both ? 2 : 1},
          {"host.done.before", operations},
          {"host.done.after", operations}};
}

class KillReplayTest : public testing::TestWithParam<Case> {};

TEST_P(KillReplayTest, EveryPointAtEveryVisitEndsWithTheSameBits) {
  Step step(GetParam());
  const Outcome want = Undisturbed(step);
  ASSERT_EQ(want.kills, 0);
  int kills = 0;
  for (const Point& point : Points(step)) {
    for (int visit = 1; visit <= point.visits; ++visit) {
      const std::string kill_at = absl::StrCat(point.name, ":", visit);
      const Outcome got = RunStep(step, 1, Once(kill_at));
      ASSERT_EQ(got.kills, 1) << kill_at;
      ASSERT_TRUE(got.state == want.state) << kill_at;
      ASSERT_EQ(got.norms, want.norms) << kill_at;
      kills += got.kills;
    }
    // The visits above are all there are.
    const Outcome past =
        RunStep(step, 1, Once(absl::StrCat(point.name, ":", point.visits + 1)));
    ASSERT_EQ(past.kills, 0) << point.name;
    std::cout << "kills at " << point.name << ": " << point.visits << "\n";
  }
  EXPECT_GE(kills, 80);
}

TEST_P(KillReplayTest, StormsOfDeathsWithSeveralThreadsEndWithTheSameBits) {
  Step step(GetParam());
  const Outcome want = Undisturbed(step);
  const std::vector<Point> points = Points(step);
  int kills = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    uint64_t random = seed;
    int left = 30;
    const auto arm = [&]() -> std::string {
      if (left-- <= 0) return "";
      // Points that come often, so that most workers die.
      size_t point = 0;
      do {
        random = random * 6364136223846793005u + 1442695040888963407u;
        point = (random >> 33) % points.size();
      } while (points[point].visits < 8);
      return absl::StrCat(points[point].name, ":", 1 + (random >> 50) % 3);
    };
    const Outcome got = RunStep(step, 1 + static_cast<int>(seed % 3), arm);
    ASSERT_TRUE(got.state == want.state) << "seed " << seed;
    ASSERT_EQ(got.norms, want.norms) << "seed " << seed;
    EXPECT_GT(got.kills, 0) << "seed " << seed;
    kills += got.kills;
  }
  std::cout << "kills in storms: " << kills << "\n";
  EXPECT_GE(kills, 50);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, KillReplayTest,
    testing::Values(Case{DType::kF32, false}, Case{DType::kBF16, false},
                    Case{DType::kBF16, true},
                    Case{DType::kF16, false, DType::kF16},
                    Case{DType::kBF16, false, DType::kBF16, true}),
    [](const testing::TestParamInfo<Case>& info) {
      return std::string(DTypeName(info.param.dtype)) +
             (info.param.adapters ? "_adapters" : "") +
             (info.param.one_pass ? "_one_pass" : "");
    });

}  // namespace
}  // namespace roundhouse::worker
