// A device worker that dies at a named point, or ends because its device broke
// or found no memory there, is reaped, its channel drained, and its slots not
// reported done are given to a fresh process: every byte of the round is as if
// nothing had happened.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/kill_point.h"
#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/slot/device_worker.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

constexpr const char* kPoints[] = {
    "slot.received",      "slot.started",       "slot.micro_batch.done",
    "slot.output.copied", "slot.output.raised", "slot.contribution.copied",
    "slot.done.before",   "slot.done.after",    "slot.fault",
    "slot.exhausted",
};

// A worker process forked from this one, which has no threads.
class Child {
 public:
  Child(SlotTestJob& job, const std::string& kill_at) {
    auto ends = *wire::Channel::Pair();
    pid_ = fork();
    if (pid_ == 0) {
      ends.first.reset();
      Work(job, *ends.second, kill_at);
    }
    daemon_ = std::move(ends.first);
  }
  ~Child() {
    daemon_.reset();
    if (pid_ > 0) Reap();
  }
  wire::Channel& channel() { return *daemon_; }
  int Reap() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  [[noreturn]] static void Work(SlotTestJob& job, wire::Channel& channel,
                                const std::string& kill_at) {
    if (!ArmKillPoint(kill_at).ok()) _exit(3);
    const auto device = NewCpuDevice(64 << 20);
    SlotRunnerOptions options;
    options.make_run = FakeStageRuns();
    const WorkerContext context{channel, job.arena(), 0, 1};
    const absl::Status status = RunDeviceWorker(context, *device, options);
    _exit(absl::IsUnavailable(status) ? 0 : 4);
  }

  pid_t pid_ = 0;
  std::unique_ptr<wire::Channel> daemon_;
};

// The daemon's side: one round over one worker after the other.
class Replayer {
 public:
  explicit Replayer(const RoundShape& shape)
      : job_(SmallConfig(4, shape.tied), shape, 3),
        reference_(job_.ComputeReference(FakeStageRuns())) {
    job_.RaiseVersions();
  }

  // Returns how many processes died at `kill_at`.
  int RunRound(uint64_t pass, const std::string& kill_at) {
    slots_ = job_.MakeRound(pass, pass * 100);
    job_.RaiseInputs();
    done_.clear();
    int kills = 0;
    while (done_.size() < slots_.size()) {
      Child child(job_, kills == 0 ? kill_at : "");
      if (Serve(child)) continue;
      const int status = child.Reap();
      if (kill_at.compare(0, 11, "slot.fault:") == 0 ||
          kill_at.compare(0, 15, "slot.exhausted:") == 0) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
      } else {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      }
      ++kills;
      if (kills > 1) break;
    }
    job_.CheckRound(slots_, done_, reference_);
    return kills;
  }

 private:
  // False when the worker died.
  bool Serve(Child& child) {
    std::deque<const wire::RunSlot*> waiting;
    for (const wire::RunSlot& slot : slots_) {
      if (done_.count(slot.slot) == 0) waiting.push_back(&slot);
    }
    wire::ConfigureJob configure;
    configure.job = SlotTestJob::kJob;
    configure.layout_offset = job_.layout_offset();
    Send(child, configure);
    int open = 0;
    while (open > 0 || !waiting.empty()) {
      while (open < wire::kMaxDispatchedSlots && !waiting.empty()) {
        Send(child, *waiting.front());
        waiting.pop_front();
        ++open;
      }
      const auto message = child.channel().Receive();
      if (!message.ok()) return false;
      if (const auto* done = std::get_if<wire::SlotDone>(&message->body)) {
        done_[done->slot] = *done;
        --open;
      }
    }
    // A point after the last slot-done is passed, or is not.
    Send(child, wire::Withdraw{0});
    return true;
  }

  // A worker that is dying may refuse: its channel says so when received from.
  void Send(Child& child, wire::Body body) {
    (void)child.channel().Send(wire::Message{++attempt_, std::move(body)});
  }

  SlotTestJob job_;
  const SlotTestJob::Reference reference_;
  std::vector<wire::RunSlot> slots_;
  std::map<uint64_t, wire::SlotDone> done_;
  uint64_t attempt_ = 0;
};

RoundShape Shape() {
  return {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 4, 2};
}

// The same of a frozen bf16 model with fp32 adapters on packed rows.
RoundShape AdapterShape() {
  RoundShape shape = Shape();
  shape.dtype = DType::kBF16;
  shape.adapter = {.rank = 2, .alpha = 4, .dropout = 0.5, .targets = 0b0001111};
  shape.packed = true;
  return shape;
}

// Sums that are rounded where they leave the device.
RoundShape RoundedShape() {
  RoundShape shape = Shape();
  shape.dtype = shape.contribution_dtype = DType::kBF16;
  return shape;
}

enum class Kind { kFull, kAdapters, kRounded };

RoundShape ShapeOf(Kind kind) {
  if (kind == Kind::kFull) return Shape();
  return kind == Kind::kAdapters ? AdapterShape() : RoundedShape();
}

class KillReplayTest
    : public testing::TestWithParam<std::tuple<const char*, Kind>> {};

TEST_P(KillReplayTest, TheRoundEndsWithTheSameBytes) {
  const auto [point, kind] = GetParam();
  Replayer replayer(ShapeOf(kind));
  uint64_t pass = 0;
  int kills = 0;
  for (const int count : {1, 2, 3, 5}) {
    SCOPED_TRACE(count);
    const std::string kill_at =
        std::string(point) + ":" + std::to_string(count);
    kills += replayer.RunRound(++pass, kill_at);
  }
  // There are five slots; the process may end before it dies of the last.
  EXPECT_GE(kills, 3);
}

std::string NameOf(
    const testing::TestParamInfo<std::tuple<const char*, Kind>>& info) {
  std::string name = std::get<0>(info.param);
  for (char& c : name) {
    if (c == '.') c = '_';
  }
  switch (std::get<1>(info.param)) {
    case Kind::kFull:
      return name;
    case Kind::kAdapters:
      return name + "_adapters";
    case Kind::kRounded:
      return name + "_rounded";
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Points, KillReplayTest,
                         testing::Combine(testing::ValuesIn(kPoints),
                                          testing::Values(Kind::kFull,
                                                          Kind::kAdapters,
                                                          Kind::kRounded)),
                         NameOf);

}  // namespace
}  // namespace roundhouse::worker
