#include "server/explain/state_since.h"

#include "base/status.h"
#include "server/store/store_check.h"

namespace roundhouse {

absl::StatusOr<std::optional<absl::Time>> StateSince(const JobStore& store,
                                                     const JobRecord& job) {
  std::optional<absl::Time> since;
  RETURN_IF_ERROR(store.ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement select,
                     db->Prepare("SELECT time_us FROM events WHERE job = ? AND "
                                 "type = 'state' AND state = ? "
                                 "ORDER BY revision DESC LIMIT 1"));
    select.Bind(JobNumber(job.id).value_or(0));
    select.Bind(static_cast<int64_t>(job.state));
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (row) since = absl::FromUnixMicros(select.Int(0));
    return absl::OkStatus();
  }));
  return since;
}

}  // namespace roundhouse
