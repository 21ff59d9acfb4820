// By how much device time each user is behind his fair share of late.
//
// Time is cut into intervals of ten seconds.  What devices computed in one is
// what users had in it, together.  A user *waited* in it if, at half of the
// looks at it or more, a job of his had a slot that no device took.
//
// An interval's fair shares are those of max-min fairness by weight, among
// projects and then among the users of each: who waited gets as much as his
// weight gives.  Who did not could use no more than he had, and gets that at
// most; the others share what he leaves.  So fair shares and what users had sum
// to the same.
//
// A user's *lag* is what his fair shares of the last 90 intervals exceed what
// he had in them, in all his projects.  It is below 0 for who had more than
// his share.  What class his jobs have is nothing to it: whose normal jobs wait
// behind another's urgent ones is behind.  Whoever looks leaves out those that
// are owed nothing (Dispatcher::Waiting).
//
// FairShares (fair_shares.h) decides by turns, which forget what somebody could
// not use; this looks at what came of it.
//
// Pure; times are in nanoseconds of one clock.  Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SHARE_SERVICE_LAG_H_
#define ROUNDHOUSE_SCHEDULER_SHARE_SERVICE_LAG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/share/fair_shares.h"

namespace roundhouse {

inline constexpr int64_t kLagIntervalNs = int64_t{10} * 1'000'000'000;
inline constexpr int64_t kLagIntervals = 90;

class ServiceLag {
 public:
  // A device computed for the owner until `end_ns`, for as long; what lies
  // before the last 90 intervals counts no more.
  void NoteUse(const JobOwner& owner, int64_t end_ns, int64_t ns);
  // A look: those with a slot that no device takes now, each once or more.
  void NoteWaiting(const std::vector<JobOwner>& waiting, int64_t now_ns);

  // By user, with the weights as they are now, of the intervals that are over.
  std::map<std::string, double> LagsNs(const ShareWeights& weights) const;

 private:
  struct Use {
    int64_t had_ns = 0;
    int64_t looks = 0;  // at which he waited
  };
  struct Interval {
    std::map<std::string, std::map<std::string, Use>> projects;  // their users
    int64_t looks = 0;
  };

  void GoTo(int64_t interval);
  static bool Waited(const Use& use, const Interval& interval);
  static void AddLags(const Interval& interval, const ShareWeights& weights,
                      std::map<std::string, double>& lags);

  int64_t newest_ = 0;                     // goes on
  std::map<int64_t, Interval> intervals_;  // by number
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SHARE_SERVICE_LAG_H_
