// A random queue of a server in virtual time: members submit, cancel and put
// jobs forward, and every second each job that waits is asked why it does.  It
// looks whether that agrees with what happens then, as long as nobody comes or
// goes:
//
//   - a job starts before one that it was to wait behind only if that one was
//     passed over by a limit of its owner, or waits for its memory and this one
//     goes ahead (fill-in), or its owner may have had more of the devices by
//     then;
//   - before it starts something ended that had the memory, the place or the
//     part of the limit that it was said to lack;
//   - a job whose turn has come starts.
//
// Then nothing happens any more, all jobs that wait are asked when they start,
// and the answers are compared with when they do.
//
// A queue is decided by its seed.  Thread-compatible.
#ifndef ROUNDHOUSE_TESTS_SIM_QUEUES_H_
#define ROUNDHOUSE_TESTS_SIM_QUEUES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/explanation.pb.h"
#include "server/store/store.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::sim {

class Queues {
 public:
  // `root` is an empty folder, and removed in the end.
  Queues(uint64_t seed, const std::string& root);
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // What was broken first, with the time; OK: nothing.
  absl::Status Run();
  const std::vector<std::string>& log() const { return log_; }

  struct Counts {
    int64_t jobs = 0;
    int64_t answers = 0;
    int64_t starts = 0;     // that were compared with an answer
    int64_t ahead = 0;      // of another that waits for its memory
    int64_t overtaken = 0;  // by use of the devices in the last second
    int64_t memory = 0;     // answers that named it, and so on
    int64_t limits = 0;
    int64_t places = 0;
    int64_t unknown = 0;  // starts that were not known
    // (real - expected) / (expected wait), of waits of 5 s or more.
    std::vector<double> errors;

    void Add(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  // What was said of a job that waits.
  struct Answer {
    absl::Time time;
    int64_t changes = 0;     // changes_ then
    uint64_t gap_bytes = 0;  // the largest in the arena, then and since
    uint64_t most_bytes = 0;
    v1::JobExplanation why;
  };
  struct Job {
    JobState state = JobState::kValidating;
    bool gives_way = false;  // PAUSING, for others have its place
    JobOwner owner;
    std::optional<Answer> answer;          // the newest
    std::optional<absl::Time> turn_since;  // its turn has come, it was said
    std::optional<absl::Time> expected;    // as it was said last of all
    absl::Time asked;                      // then
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  SimServerOptions OptionsOf(const std::string& root);
  void Say(const std::string& what);
  void Break(const std::string& what);

  void Submit();
  void CancelOne();
  void PutForward();
  void DoSomething();
  void Pass(absl::Duration time);
  void Look();
  void OnState(const std::string& id, Job& job, const JobEvent& event);

  void AskAll();
  v1::JobExplanation Ask(const std::string& id);
  void Count(const Answer& answer);
  void CheckTurn(const std::string& id, Job& job);
  void CheckStart(const std::string& id, const Job& job);
  void CheckBefore(const std::string& id, const Answer& answer);
  void CheckObstacle(const std::string& id, const Job& job,
                     const v1::Obstacle& obstacle);
  bool MayHaveUsedMore(const v1::JobBefore& before, absl::Time since) const;
  // Whether as many of his as may run, but for that one.
  bool IsAtHisLimit(const JobOwner& owner, const std::string& but) const;
  // Whether a job of the user has ended since then; "": of anybody.
  bool Ended(const std::string& user, absl::Time since) const;
  bool AllOver() const;
  void CompareStarts();

  const std::string root_;
  std::mt19937_64 random_;
  int devices_ = 1;
  int64_t max_of_user_ = 1;
  std::unique_ptr<SimServer> server_;
  std::map<std::string, Job> jobs_;
  int64_t revision_ = 0;
  int64_t submits_ = 0;
  int64_t changes_ = 0;  // that no answer could know of
  struct End {
    std::string user;
    absl::Time time;
  };
  std::vector<End> ends_;
  absl::Status broken_;
  std::vector<std::string> log_;
  Counts counts_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_QUEUES_H_
