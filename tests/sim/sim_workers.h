// The workers in virtual time: they do what real ones do with words and
// answers, in the arena of the daemon under test, and compute nothing.
//
//   device  runs one slot at a time, those of a job in their order: of those
//           whose inputs are all there the one of the lowest turn, and the
//           oldest with its first input; each micro-batch takes time and raises
//           its outputs, and the oldest slot's next one may have to wait
//   host    one operation after the other, in the order in which they came
//   files   likewise; saves are written
//
// What takes how long is drawn from a seed.  A worker that is killed loses all
// that it has, and is up again some time later.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_TESTS_SIM_SIM_WORKERS_H_
#define ROUNDHOUSE_TESTS_SIM_SIM_WORKERS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/arena/host_arena.h"
#include "server/loop/event_loop.h"
#include "server/workers/worker_pool.h"

namespace roundhouse::sim {

// A command and what the daemon calls it.
struct Order {
  WorkerId worker{};
  uint64_t attempt = 0;
  wire::Body body;
};

struct SimWorkersOptions {
  int device_count = 1;
  uint64_t seed = 0;
  // What a layer takes of a micro-batch on average; each job has its own
  // length, between a quarter of this and four times as much, or all have this.
  absl::Duration layer_time = absl::Milliseconds(20);
  enum class Lengths { kOfEachJob, kEqual } lengths = Lengths::kOfEachJob;
  // What it takes of a job's, in place of these where it is set.
  std::function<absl::Duration(uint64_t job)> layer_time_of = {};
  // Words that the daemon raises ring no bell here: who waits looks again.
  absl::Duration look_again = absl::Milliseconds(100);
  // Whether saves fail.
  std::function<bool()> disk_full = [] { return false; };
  // Is told of a command as it begins, and of one that is done, with the time
  // that a slot was computed.
  std::function<void(const Order&)> begins = [](const Order&) {};
  std::function<void(const Order&, absl::Duration)> done =
      [](const Order&, absl::Duration) {};
};

class SimWorkers final : public WorkerPool {
 public:
  // `loop` and `arena` outlive it.
  SimWorkers(EventLoop& loop, HostArena& arena,
             const SimWorkersOptions& options);

  // All begin to start; `listener` outlives the pool.
  void Start(Listener* listener);
  // Its process dies, if it is up, and another one is started.
  void Kill(WorkerId worker);
  // The device is given up, as after too many deaths.
  void Lose(DeviceId device);

  // WorkerPool
  uint64_t Send(WorkerId worker, wire::Body body,
                ReplyHandler* handler) override;
  void Forget(const ReplyHandler* handler) override;
  void Withdraw(DeviceId device, uint64_t attempt) override;
  void TakeOut(DeviceId device, const std::string& why) override;
  void BringBack(DeviceId device) override;
  const WorkerInfo& info(WorkerId worker) const override {
    return At(worker).info;
  }

 private:
  struct Running {
    Order order;
    size_t micro_batch = 0;  // of a slot: the next one, or that which runs
    bool busy = false;       // until a timer comes
    bool withdrawn = false;  // asked for
    int64_t begun_ns = 0;
    int64_t compute_ns = 0;
  };
  struct Worker {
    WorkerInfo info;
    uint64_t life = 0;  // rises with each death
    uint64_t next_attempt = 1;
    Replies replies;
    std::list<Order> waiting;  // as they came
    std::optional<Running> running;
    bool looks = false;  // GoOn is to come
  };

  Worker& At(WorkerId worker) {
    return workers_[static_cast<size_t>(Number(worker))];
  }
  const Worker& At(WorkerId worker) const {
    return workers_[static_cast<size_t>(Number(worker))];
  }
  absl::Duration Draw(absl::Duration least, absl::Duration most);
  // What a micro-batch takes in the slot.
  absl::Duration MicroBatchTime(const wire::RunSlot& slot) const;
  absl::Duration CommandTime(const wire::Body& command);

  void StartLater(WorkerId worker);
  void Die(WorkerId worker, const std::string& why);
  // `then` comes after this time, unless the worker dies meanwhile.
  void After(WorkerId worker, absl::Duration delay, std::function<void()> then);
  void GoOnLater(WorkerId worker, absl::Duration delay);
  void LookAgain(WorkerId worker);
  void AllGoOn();
  void GoOn(WorkerId worker);
  bool Begin(WorkerId worker);
  void GoOnWithSlot(WorkerId worker, const wire::RunSlot& slot);
  void OnMicroBatch(WorkerId worker);
  void EndSlot(WorkerId worker, const wire::RunSlot& slot);
  void EndCommand(WorkerId worker);
  // The running one is over: this is its answer.
  void Answer(WorkerId worker, wire::Body answer);
  void Tell(WorkerId worker, const wire::Message& message);

  bool Reached(const wire::WordRef& ref) const;
  bool AllReached(const std::vector<wire::SlotUnit>& units) const;
  bool MayRun(const wire::RunSlot& slot, size_t micro_batch) const;
  bool MayBegin(const Order& order, bool oldest) const;
  void Raise(const wire::WordRef& ref);

  EventLoop& loop_;
  HostArena& arena_;
  const SimWorkersOptions options_;
  std::mt19937_64 random_;
  Listener* listener_ = nullptr;
  std::vector<Worker> workers_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_SIM_WORKERS_H_
