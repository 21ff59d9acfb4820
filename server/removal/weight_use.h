// Which jobs use a checkpoint or a result of another, and whether what a job
// names is there: asked in the transactions that delete the one and add the
// other, so that neither misses the other.
//
// A job says what it uses by paths in its resolved spec.  Thread-safe; errors
// are also the database's.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_WEIGHT_USE_H_
#define ROUNDHOUSE_SERVER_REMOVAL_WEIGHT_USE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/removal/state_paths.h"
#include "server/store/store_db.h"

namespace roundhouse {

class WeightUse {
 public:
  explicit WeightUse(const std::string& state_dir)
      : state_dir_(state_dir), paths_(state_dir) {}

  // kFailedPrecondition naming jobs that have not ended and use one of `paths`,
  // or something in it.
  absl::Status CheckUnused(Database* db,
                           const std::vector<std::string>& paths) const;
  // Whatever jobs that have not ended use, as StatePaths::Below has it.
  absl::StatusOr<std::vector<std::string>> UsedNames(Database* db) const;
  // Whether `name` overlaps one of them.
  static bool IsAmong(const std::string& name,
                      const std::vector<std::string>& names);
  // kNotFound where `spec`, a resolved one, names a checkpoint or result that
  // was deleted since it was looked up.  Looks at most three paths up.
  absl::Status CheckThere(Database* db, const std::string& spec) const;

 private:
  // `name` as StatePaths::Below has it.
  absl::StatusOr<bool> WasDeleted(Database* db, const std::string& name) const;
  absl::StatusOr<bool> IsGoingOutput(Database* db,
                                     const std::string& name) const;

  const std::string state_dir_;
  const StatePaths paths_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_WEIGHT_USE_H_
