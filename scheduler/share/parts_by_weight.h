// Max-min fairness by weight: how something is divided among those who can use
// but so much of it.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_SHARE_PARTS_BY_WEIGHT_H_
#define ROUNDHOUSE_SCHEDULER_SHARE_PARTS_BY_WEIGHT_H_

#include <vector>

namespace roundhouse {

// Who asks for a part.
struct Claim {
  double weight = 1;  // above 0
  double most = 0;    // that it can use; may be infinite
};
// What each gets: by weight, but no more than it can use; the others have the
// rest.  So who gets less than he can use gets as much for his weight as
// anybody.  Some of the amount is left where they can't use it.
std::vector<double> PartsByWeight(double amount,
                                  const std::vector<Claim>& claims);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SHARE_PARTS_BY_WEIGHT_H_
