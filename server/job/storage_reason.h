// What a failure to read or write means for a job: it may pass, or why the job
// waits.
#ifndef ROUNDHOUSE_SERVER_JOB_STORAGE_REASON_H_
#define ROUNDHOUSE_SERVER_JOB_STORAGE_REASON_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/files/open_limit.h"
#include "base/job_state.h"

namespace roundhouse {

// How the message ends of a job that is PAUSED without its memory until there
// is room on the disk: the next daemon knows it by that, too.
inline constexpr absl::string_view kGoesOnWithRoom =
    "; it goes on by itself when there is room, or when resumed";

// A failing disk and a shortage may pass: the job waits and tries again.
inline bool MayPass(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsUnavailable(status);
}

// Why a job is held, or PAUSED, when this kept it from reading or writing:
// RESOURCE_EXHAUSTED is the disk's, UNAVAILABLE host memory of the save itself,
// or a mount that does not answer.
inline JobReason StorageReason(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? JobReason::kStorageFull
         : IsOpenHang(status)              ? JobReason::kStorageError
         : absl::IsUnavailable(status)     ? JobReason::kHostMemory
                                           : JobReason::kStorageError;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_STORAGE_REASON_H_
