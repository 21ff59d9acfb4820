// A daemon in virtual time: the real loop, store, admission, engine and
// dispatcher, in a folder of its own, with workers that only take time
// (sim_workers.h).
//
// One thread does everything, in an order that a seed decides; the clock stands
// still until nothing is left to do, and then goes on to the next timer.  Work
// beside the loop is done by ManualThreads; calls of the API, which block, come
// from a second thread while the loop turns, one at a time.  Data and prompts
// are read by children that are no processes (sim_helpers.h).
//
// Thread-compatible.  One at a time in a process (SetTimeForTest).
#ifndef ROUNDHOUSE_TESTS_SIM_SIM_SERVER_H_
#define ROUNDHOUSE_TESTS_SIM_SIM_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/manual_clock.h"
#include "server/arena/host_arena.h"
#include "server/dataset/dataset_helper.h"
#include "server/jobs/engine.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"
#include "server/limits/sharing.h"
#include "server/loop/event_loop.h"
#include "server/loop/manual_threads.h"
#include "server/observe/metrics.h"
#include "server/store/store.h"
#include "tests/sim/sim_helpers.h"
#include "tests/sim/sim_workers.h"

namespace roundhouse::sim {

struct SimServerOptions {
  std::string root;  // a folder that is there, and empty
  SimWorkersOptions workers;
  uint64_t host_bytes = uint64_t{64} << 20;
  int max_running_jobs = 2;
  int sequences = 12;  // in every dataset
  // What a helper takes at most for a dataset, or to tokenize.
  absl::Duration helper_time = absl::ZeroDuration();
  Sharing sharing = {};  // as the table of limits says it
  // What of the store's writes fails, as StoreOptions::fault.
  std::function<absl::Status()> store_fault = [] { return absl::OkStatus(); };
};

class SimServer {
 public:
  // Writes model, data and helper into the root; no daemon runs yet.
  explicit SimServer(const SimServerOptions& options);
  ~SimServer();
  SimServer(const SimServer&) = delete;
  SimServer& operator=(const SimServer&) = delete;

  // A daemon, where none runs.
  void Start();
  // It ends as by SIGKILL: nothing of what it had begun goes on.
  void Crash();

  Engine& engine() { return *daemon_->engine; }
  JobStore& store() { return *daemon_->store; }
  // As the API has them.
  DeviceLoans& loans() { return *daemon_->loans; }
  const LimitCheck& limits() { return *daemon_->limits; }
  SimWorkers& workers() { return *daemon_->workers; }
  SimHelpers& helpers() { return helpers_; }
  HostArena& arena() { return *daemon_->arena; }
  const ServerMetrics& metrics() const { return *daemon_->metrics; }
  // Whether the store may have something new since this was asked last.
  bool store_told() { return store_told_.exchange(false); }
  absl::Time now() const { return clock_.WallTime(); }

  // One turn of the loop, and what waits beside it; false: nothing was left.
  bool Turn();
  // Does what there is to do now; the clock stands still.
  void Settle();
  // The clock goes on by this much, and `each` is called whenever nothing is
  // left to do at a time.
  void RunFor(absl::Duration time, const std::function<void()>& each);

  // A call of the API's, which may block, and what it answers.
  template <typename Result>
  Result Call(std::function<Result()> call) {
    Settle();
    std::optional<Result> result;
    std::atomic<bool> answered = false;
    std::thread caller([&, loop = daemon_->loop.get()] {
      result.emplace(call());
      answered = true;
      loop->PostAnswer([] {});
    });
    while (!answered) {
      daemon_->loop->RunTurn(absl::Milliseconds(100));
      daemon_->threads.Run();
    }
    caller.join();
    Settle();
    return *std::move(result);
  }

 private:
  // Ends from the bottom up.
  struct Daemon {
    ManualThreads threads;
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<HostArena> arena;
    std::shared_ptr<ServerMetrics> metrics;
    std::unique_ptr<JobStore> store;
    std::unique_ptr<LimitTable> limit_table;
    std::unique_ptr<LimitCheck> limits;
    std::unique_ptr<SimWorkers> workers;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<DeviceLoans> loans;
  };

  void WriteInputs() const;
  HelperProgram Helper();

  const SimServerOptions options_;
  ManualClock clock_;
  SimHelpers helpers_;
  uint64_t lives_ = 0;
  std::atomic<bool> store_told_ = false;
  std::unique_ptr<Daemon> daemon_;
};

// Two equal models of each server, with weights, as jobs and samples name them.
inline constexpr char kModel[] = "m";
inline constexpr char kOtherModel[] = "other";

// What the arena keeps of one of them that adapters or a sample were on.
uint64_t BaseBytes();

// A tiny model without weights, in a new folder.
void WriteModel(const std::string& folder, int vocabulary);

// A new folder for a server, in memory where there is such a place: nothing
// here depends on a disk.
std::string NewRoot();

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_SIM_SERVER_H_
