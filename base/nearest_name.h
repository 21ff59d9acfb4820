// What a misspelt name may have been meant to be.  Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_NEAREST_NAME_H_
#define ROUNDHOUSE_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace roundhouse {

// The one of `names` that takes the fewest edits; "" when none is within reach,
// which is a third of the name's letters and at least one edit.  Two neighbours
// swapped are one edit.  A name of up to three letters keeps its first.  ""
// too when `name` is one of them, for then it is not misspelt.
std::string NearestName(const std::string& name,
                        const std::vector<std::string>& names);

// "; did you mean list?", to stand behind "unknown command"; "" without one.
std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& names);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_NEAREST_NAME_H_
