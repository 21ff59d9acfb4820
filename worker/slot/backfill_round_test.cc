// A round of a backfill job beside one of a normal job, on the same workers:
// random histories of late inputs, changes of class, withdrawals and memory.
// ROUNDHOUSE_COUNT says how many of them, ROUNDHOUSE_SEED which is the first.

#include <atomic>
#include <deque>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/number_from_environment.h"
#include "base/turns.h"
#include "gtest/gtest.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kBackfillJob = SlotTestJob::kJob + 1;
constexpr uint64_t kFirstBackfillSlot = 1000;
// As the dispatcher sends them (scheduler/dispatch/sent_work.h).
constexpr int kMostNormal = 6;
constexpr int kMostBackfill = 3;

RoundShape Shape(uint64_t draw) {
  switch (draw % 3) {
    case 0:
      return {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 4, 2};
    case 1:
      return {{{0, 0}, {1, 1}, {2, 3}}, {{3, 4}, {0, 2}}, 6, 2, 1};
    default:
      return {{}, {{0, 4}}, 3, 3};
  }
}

// One device worker, and a thread that receives what it says.
class OneDevice {
 public:
  using Said = std::function<void(const wire::Message&)>;

  OneDevice(SlotTestJob& job, int index, uint64_t memory_bytes, Said said)
      : said_(std::move(said)) {
    TestWorkerOptions options;
    options.device_memory_bytes = memory_bytes;
    options.runner.make_run =
        FakeStageRuns([this](int64_t, bool) { return ComputeLayer(); });
    worker_ = std::make_unique<TestWorker>(job, index, std::move(options));
    configure_.job = kBackfillJob;
    configure_.layout_offset = job.layout_offset();
    worker_->Send(configure_);
    worker_->Await<wire::JobConfigured>();
    thread_ = std::thread([this] { Receive(); });
  }
  // REQUIRES: all slots have ended.
  ~OneDevice() {
    worker_->Send(configure_);  // whose answer ends the thread
    thread_.join();
  }

  TestWorker& worker() { return *worker_; }

 private:
  absl::Status ComputeLayer() {
    EXPECT_FALSE(computing_.exchange(true)) << "two compute at once";
    const int64_t until_ns = MonotonicNs() + (layers_++ * 7 % 5) * 20'000;
    while (MonotonicNs() < until_ns) std::this_thread::yield();
    computing_ = false;
    return absl::OkStatus();
  }

  void Receive() {
    while (true) {
      const wire::Message message = worker_->Next();
      if (std::holds_alternative<wire::JobConfigured>(message.body)) return;
      said_(message);
    }
  }

  const Said said_;
  wire::ConfigureJob configure_;
  std::atomic<bool> computing_ = false;
  std::atomic<int64_t> layers_ = 0;
  std::unique_ptr<TestWorker> worker_;
  std::thread thread_;
};

struct Totals {
  int backfilled = 0;  // BackfillComputed
  int withdrawn = 0;
};

// The daemon's side: sends the slots of both jobs as the dispatcher does, each
// job's in order, and disturbs those of the backfill job.
class History {
 public:
  History(SlotTestJob& job, uint64_t memory_bytes, uint64_t seed,
          Totals& totals)
      : random_(seed), totals_(totals) {
    const int count = 1 + static_cast<int>(random_() % 3);
    for (int d = 0; d < count; ++d) {
      devices_.push_back(std::make_unique<OneDevice>(
          job, d, memory_bytes, [this, d](const wire::Message& message) {
            MutexLock lock(mutex_);
            said_.push_back({d, message});
            changed_.NotifyAll();
          }));
    }
  }

  std::map<uint64_t, wire::SlotDone> Run(
      const std::vector<wire::RunSlot>& normal,
      const std::vector<wire::RunSlot>& backfill) {
    waiting_[kNormal] = {normal.begin(), normal.end()};
    waiting_[kBackfill] = {backfill.begin(), backfill.end()};
    SendMore();
    while (!open_.empty()) {
      const auto [device, message] = AwaitMessage();
      On(device, message);
      if (!open_.empty() && Chance(10)) Disturb();
      SendMore();
    }
    devices_.clear();
    return std::move(done_);
  }

 private:
  enum Which { kNormal, kBackfill };
  using Key = std::pair<int, uint64_t>;  // device, attempt
  struct Open {
    wire::RunSlot slot;
    bool withdrawn = false;
  };

  bool Chance(int percent) {
    return static_cast<int>(random_() % 100) < percent;
  }
  int DeviceOf(const wire::RunSlot& slot) const {
    return static_cast<int>(slot.slot % devices_.size());
  }
  static bool OfBackfill(const wire::RunSlot& slot) {
    return slot.job == kBackfillJob;
  }

  std::pair<int, wire::Message> AwaitMessage() {
    MutexLock lock(mutex_);
    while (said_.empty()) changed_.Wait(mutex_);
    auto first = std::move(said_.front());
    said_.pop_front();
    return first;
  }

  bool HasRoom(const wire::RunSlot& slot) const {
    int all = 0;
    int of_job = 0;
    int of_class = 0;
    const bool backfill = IsBackfillTurn(slot.turn);
    for (const auto& [key, open] : open_) {
      if (key.first != DeviceOf(slot)) continue;
      ++all;
      of_job += open.slot.job == slot.job ? 1 : 0;
      of_class += IsBackfillTurn(open.slot.turn) == backfill ? 1 : 0;
    }
    return all < kMostNormal + kMostBackfill && of_job < 3 &&
           of_class < (backfill ? kMostBackfill : kMostNormal);
  }

  bool SendOne(Which which) {
    auto& waiting = waiting_[which];
    if (waiting.empty() || (which == kBackfill && withdrawing_ > 0)) {
      return false;
    }
    wire::RunSlot slot = waiting.front();
    slot.turn = (which == kNormal || promoted_ ? kNormalTurn : kBackfillTurn) +
                slot.slot;
    if (!HasRoom(slot)) return false;
    waiting.pop_front();
    const int device = DeviceOf(slot);
    open_[{device, devices_[device]->worker().Send(slot)}] = {slot};
    return true;
  }

  void SendMore() {
    while (SendOne(Chance(50) ? kNormal : kBackfill)) {
    }
    while (SendOne(kNormal) || SendOne(kBackfill)) {
    }
  }

  void On(int device, const wire::Message& message) {
    const Key key = {device, message.attempt};
    const wire::Body& body = message.body;
    if (const auto* done = std::get_if<wire::SlotDone>(&body)) {
      done_[done->slot] = *done;
      Close(key);
    } else if (std::holds_alternative<wire::Withdrawn>(body)) {
      waiting_[kBackfill].push_back(open_.at(key).slot);
      std::sort(waiting_[kBackfill].begin(), waiting_[kBackfill].end(),
                [](const wire::RunSlot& a, const wire::RunSlot& b) {
                  return a.slot < b.slot;
                });
      ++totals_.withdrawn;
      Close(key);
    } else if (const auto* failed = std::get_if<wire::Failed>(&body)) {
      ADD_FAILURE() << failed->text;
      Close(key);
    } else if (const auto* one = std::get_if<wire::BackfillComputed>(&body)) {
      int64_t& last_ns = last_backfill_ns_[device];
      EXPECT_GE(one->started_ns, last_ns);
      EXPECT_GE(one->ended_ns, one->started_ns);
      last_ns = one->ended_ns;
      ++totals_.backfilled;
    } else if (std::holds_alternative<wire::MicroBatchDone>(body)) {
      EXPECT_FALSE(IsBackfillTurn(open_.at(key).slot.turn));
    }
  }

  void Close(const Key& key) {
    withdrawing_ -= open_.at(key).withdrawn ? 1 : 0;
    open_.erase(key);
  }

  // The job's class changes, or some of its slots are withdrawn.
  void Disturb() {
    if (withdrawing_ > 0) return;
    if (Chance(50)) {
      promoted_ = !promoted_;
      if (promoted_) WithdrawFrom(FirstBackfillSlot());
    } else {
      WithdrawFrom(SomeSlot());
    }
  }

  uint64_t FirstBackfillSlot() const {
    uint64_t first = std::numeric_limits<uint64_t>::max();
    for (const auto& [key, open] : open_) {
      if (IsBackfillTurn(open.slot.turn)) {
        first = std::min(first, open.slot.slot);
      }
    }
    return first;
  }

  uint64_t SomeSlot() {
    auto some = open_.begin();
    std::advance(some, random_() % open_.size());
    return some->second.slot.slot;
  }

  // All slots of the backfill job from this one on, the last one first.
  void WithdrawFrom(uint64_t first) {
    std::map<uint64_t, Key, std::greater<>> slots;
    for (const auto& [key, open] : open_) {
      if (OfBackfill(open.slot) && open.slot.slot >= first) {
        slots[open.slot.slot] = key;
      }
    }
    for (const auto& [number, key] : slots) {
      open_.at(key).withdrawn = true;
      ++withdrawing_;
      TestWorker& worker = devices_[key.first]->worker();
      worker.Cancel(key.second);
      worker.Send(wire::Withdraw{key.second});
    }
  }

  std::mt19937_64 random_;
  Totals& totals_;
  std::deque<wire::RunSlot> waiting_[2];  // by Which
  std::map<Key, Open> open_;
  bool promoted_ = false;
  int withdrawing_ = 0;
  std::map<uint64_t, wire::SlotDone> done_;
  std::map<int, int64_t> last_backfill_ns_;  // by device
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<int, wire::Message>> said_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<OneDevice>> devices_;
};

// As slots of the backfill job.
std::vector<wire::RunSlot> BackfillRound(SlotTestJob& job) {
  std::vector<wire::RunSlot> slots = job.MakeRound(2, kFirstBackfillSlot);
  for (wire::RunSlot& slot : slots) {
    slot.job = kBackfillJob;
  }
  return slots;
}

// The inputs come one after the other.
void RaiseSlowly(SlotTestJob& job, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int m = 0; m < job.shape().micro_batches; ++m) {
    const int64_t until_ns =
        MonotonicNs() + static_cast<int64_t>(random() % 1'500'000);
    while (MonotonicNs() < until_ns) std::this_thread::yield();
    job.RaiseInput(static_cast<size_t>(m));
  }
}

uint64_t LargestSlot(SlotTestJob& job,
                     const std::vector<wire::RunSlot>& slots) {
  const auto tables = ReadJobTables(job.arena(), job.layout_offset());
  uint64_t most = 0;
  for (const wire::RunSlot& slot : slots) {
    const auto plan =
        PlanSlot(slot, **tables, job.arena().size_bytes(), {UINT64_MAX});
    most = std::max(most, plan->device_bytes() + plan->working_bytes);
  }
  return most;
}

void RunHistory(uint64_t seed, Totals& totals) {
  SCOPED_TRACE(absl::StrCat("ROUNDHOUSE_SEED=", seed));
  std::mt19937_64 random(seed);
  SlotTestJob job(SmallConfig(4, false), Shape(random()), seed);
  job.RaiseVersions();
  const auto reference = job.ComputeReference(FakeStageRuns());
  const std::vector<wire::RunSlot> backfill = BackfillRound(job);
  job.RaiseInputs();
  const std::vector<wire::RunSlot> normal = job.MakeRound(1, 1);
  // From memory for one slot at a time to memory for all.
  const uint64_t least = LargestSlot(job, normal);
  const uint64_t memory = least + random() % (5 * least);
  std::thread inputs([&, draw = random()] { RaiseSlowly(job, draw); });
  const auto done =
      History(job, memory, random(), totals).Run(normal, backfill);
  inputs.join();
  job.CheckRound(normal, done, reference);
  job.CheckRound(backfill, done, reference);
}

TEST(BackfillRoundTest, BothRoundsEndWithTheSameBytes) {
  const uint64_t first = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  const uint64_t end = first + NumberFromEnvironment("ROUNDHOUSE_COUNT", 150);
  Totals totals;
  for (uint64_t seed = first; seed < end && !HasFailure(); ++seed) {
    RunHistory(seed, totals);
  }
  std::cout << totals.backfilled << " times in the waits of others, "
            << totals.withdrawn << " slots withdrawn\n";
  EXPECT_GT(totals.backfilled, 0);
}

}  // namespace
}  // namespace roundhouse::worker
