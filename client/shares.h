// Shares as whole percents that add up.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_SHARES_H_
#define ROUNDHOUSE_CLIENT_SHARES_H_

#include <vector>

namespace roundhouse::client {

// What each of `parts` is of their sum, in percents that sum to `percents`
// exactly: rounded down, and one more for those that lost most by it (the first
// of equal ones).  All are 0 where no part is above 0; a negative part is 0.
std::vector<int> WholePercents(std::vector<double> parts, int percents);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_SHARES_H_
