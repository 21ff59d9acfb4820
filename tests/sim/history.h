// A random history of a server in virtual time.  Members submit, cancel, pause,
// resume, finish and put forward, ask for samples and withdraw them.  Workers
// and helpers die, devices are lost, lent and returned, the store refuses, the
// disk is full for a while, and the daemon is killed.  Some jobs train adapters
// or have evaluations.  After every event it looks whether what is promised
// holds:
//
//   - what was acknowledged is there, priorities too, a request that is made
//     again gives the job that it made, and each state follows from the last
//     one by an arrow of job_state.h;
//   - a job that gave way to others comes back by itself;
//   - no more jobs run than may, of all and of each user;
//   - only jobs that run get slots, and no device that is lent for long;
//   - each unit is updated once in each step, the steps follow each other, and
//     none is left out, nor a unit in the last one;
//   - a job that says that it goes on by itself when there is room does;
//   - one that was told to pause is not queued before it is resumed;
//   - a sample ends once, with all its tokens or an error that may be, and one
//     that is withdrawn soon (history_samples.h);
//   - in the end every job that nobody cancelled has all its steps and a
//     result, the others are CANCELLED, and all host memory is free;
//   - a result has each evaluation and each sample that is due once
//     (job_plan.h).
//
// A history is decided by its seed; it is the same one each time.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_TESTS_SIM_HISTORY_H_
#define ROUNDHOUSE_TESTS_SIM_HISTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/store.h"
#include "tests/sim/history_samples.h"
#include "tests/sim/job_plan.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::sim {

class History {
 public:
  // `root` is an empty folder, and removed in the end.
  History(uint64_t seed, const std::string& root);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // All of it.  What was broken first, with the time; OK: nothing.
  absl::Status Run();

  // What workers began, and when: equal for equal seeds.
  uint64_t digest() const { return digest_; }
  // What happened, for whoever looks for a mistake.
  const std::vector<std::string>& log() const { return log_; }

  struct Counts {
    int64_t submits = 0;
    int64_t jobs = 0;
    int64_t slots = 0;
    int64_t crashes = 0;
    int64_t deaths = 0;
    int64_t loans = 0;
    int64_t full_disks = 0;
    int64_t held = 0;  // jobs that a full disk paused
    int64_t samples = 0;
    int64_t answered = 0;  // of them
    int64_t succeeded = 0;
    int64_t cancelled = 0;

    void Add(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Job {
    JobState state = JobState::kValidating;
    bool memory_kept = false;
    // It has given its place to others and only ends, or is saved.
    bool place_given_up = false;
    bool gives_way = false;      // GIVES_WAY: it comes back
    bool awaits_room = false;    // it says that it goes on by itself
    bool told_to_pause = false;  // and not to resume, since
    JobPlan plan;
    bool cancelled = false;                 // asked for
    bool finished = false;                  // asked for
    Priority priority = Priority::kNormal;  // asked for last
    SubmitRequest request;                  // that made it
    uint64_t last_step = 0;  // in which a unit was updated, in any life
    // By unit: the last step in which it was updated, and the operation.
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> updates;
    std::set<int64_t> unsampled;  // steps whose samples may be missing
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  bool Chance(int percent) {
    return Draw(100) < static_cast<uint64_t>(percent);
  }
  SimServerOptions OptionsOf(const std::string& root);
  void Say(const std::string& what);
  void Break(const std::string& what);

  void OnBegins(const Order& order);
  void CheckActive(uint64_t number, const std::string& what);
  void OnDone(const Order& order);
  void Pass(absl::Duration time);
  // What the store has told since the last look.
  void Look();
  void LookNow();
  void OnChange(const JobChange& change);
  void OnNote(const std::string& text, Job& job);
  void ReadLog(const std::string& path, Job& job);
  void CheckUpdates(const std::string& id, const Job& job);
  void CheckRunning();
  void CheckLent();
  void CheckSamples();

  void DoSomething();
  std::map<std::string, Job>::iterator AnyJob();
  void Submit();
  void SubmitAgain();
  absl::StatusOr<std::string> Send(const SubmitRequest& request);
  void Ask();
  void SetPriority();
  void NoteAnswer(const std::string& asked, const absl::Status& answer);
  void HitWorker();
  void LendOrReturn();
  void FillDisk();
  void MendDisk();
  void AskForSample();
  void WithdrawSample();
  void Restart();
  void BreakStore();
  void MendStore();
  // What jobs wanted to write may not be written.
  bool StoreMayLag() const;
  void EndAll();
  bool ResumeAll();
  void ReturnAll();
  void CheckArena();
  void CheckEnds();
  void CheckEnd(const std::string& id, Job& job);

  const std::string root_;
  std::mt19937_64 random_;
  int devices_ = 1;
  int max_running_ = 1;
  int max_of_user_ = 1;
  uint64_t free_arena_bytes_ = 0;  // what is used without a job
  absl::Status store_fault_;
  absl::Time store_well_;  // since when
  SimDisk disk_;
  bool saves_fail_ =
      false;  // what the files worker writes, while disk_ is full
  HistorySamples samples_;
  int helper_deaths_ = 0;
  std::unique_ptr<SimServer> server_;
  std::map<std::string, Job> jobs_;
  int64_t revision_ = 0;
  std::set<int> lost_;  // devices
  absl::Status broken_;
  uint64_t digest_ = 0;
  std::vector<std::string> log_;
  Counts counts_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_HISTORY_H_
