// The file that holds the step after which a job ends that was asked to finish:
// another life of the job ends there too.
//
// Blocking file access; thread-safe.
#ifndef ROUNDHOUSE_SERVER_RUN_FINISH_MARK_H_
#define ROUNDHOUSE_SERVER_RUN_FINISH_MARK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// Durable when it returns; sealed (base/files/sealed_json.h).  Errors as
// base/files/durable_file.h.
absl::Status WriteFinishMark(const std::string& path, int64_t step);

// None: nullopt.  DATA_LOSS: there is one, and it is damaged.  Earlier daemons
// wrote the bare number.
absl::StatusOr<std::optional<int64_t>> ReadFinishMark(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_FINISH_MARK_H_
