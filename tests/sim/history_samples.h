// The samples that people ask for in a random history, and what is promised of
// each: it ends once, with every token or with an error that may be.  One that
// is withdrawn draws no more, and ends soon.
//
// Its calls come from whoever turns the server's loop.
#ifndef ROUNDHOUSE_TESTS_SIM_HISTORY_SAMPLES_H_
#define ROUNDHOUSE_TESTS_SIM_HISTORY_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/api/sample_engine.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::sim {

class HistorySamples {
 public:
  struct Counts {
    int64_t asked = 0;
    int64_t answered = 0;   // with all tokens
    int64_t withdrawn = 0;  // and not answered
    int64_t failed = 0;     // in another way
  };

  HistorySamples();
  ~HistorySamples();

  void Ask(SimServer& server, const SampleQuestion& question);
  // Nobody waits any more for the one of this number modulo those that have not
  // ended; its name, or "" where there is none.
  std::string Withdraw(SimServer& server, uint64_t number);
  // The daemon is dead, and what it was asked with it.
  void OnCrash();

  // What a helper's death may have ended.
  void NoteHelperDeath() { helper_died_ = true; }
  // How many have not ended.
  size_t open() const { return open_.size(); }
  // Takes out those that have ended.  The first promise that is broken.
  absl::Status Look(absl::Time now);
  const Counts& counts() const { return counts_; }

 private:
  struct Asked;

  absl::Status CheckOpen(const Asked& asked, absl::Time now) const;
  absl::Status CheckEnd(const Asked& asked) const;
  bool MayFail(const Asked& asked) const;

  std::vector<std::shared_ptr<Asked>> open_;
  bool helper_died_ = false;
  Counts counts_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_HISTORY_SAMPLES_H_
