// What a path means that lies in the state directory, however that was named.
//
// Pure once it is made, which looks the directory up.  Thread-safe.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_STATE_PATHS_H_
#define ROUNDHOUSE_SERVER_REMOVAL_STATE_PATHS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace roundhouse {

class StatePaths {
 public:
  explicit StatePaths(const std::string& state_dir);

  // "jobs/UID/checkpoint-40" or "outputs/NAME"; "" of what lies elsewhere.
  std::string Below(const std::string& path) const;

  // Whether one of two such names is the other, or lies in it.
  static bool Overlap(absl::string_view a, absl::string_view b);

 private:
  // As it was given, and without links.
  std::vector<std::string> roots_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_STATE_PATHS_H_
