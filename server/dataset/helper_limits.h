// What one run of the dataset helper may take, and how many may run.
//
// The helper puts its limits on itself before it reads anything of a user
// (server/prepare/common/limits.py, which also has those of one template and
// one batch, and files.py there those of files); the daemon watches time and
// silence.
#ifndef ROUNDHOUSE_SERVER_DATASET_HELPER_LIMITS_H_
#define ROUNDHOUSE_SERVER_DATASET_HELPER_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace roundhouse {

// Address space while files of a user are read.  A tokenizer of 150,000 tokens
// takes 220 MiB, one of 262,000 350 MiB; a batch of rows at most 500 MiB more.
inline constexpr int64_t kHelperMemoryBytes = int64_t{2} << 30;
// The same while pairs of tokens are counted for the bigram baseline, of whose
// up to 20,000,000 each takes 200 bytes.
inline constexpr int64_t kHelperCountingBytes = int64_t{6} << 30;
// CPU time for a whole run; 128 GiB of data take less.
inline constexpr int64_t kHelperCpuSeconds = 72 * 3600;
// Any file that is written: 128 GiB of text, a token of 4 bytes for each byte.
inline constexpr int64_t kHelperFileBytes = int64_t{512} << 30;

// Until the helper's first word, which comes when it has read the tokenizer.
inline constexpr absl::Duration kHelperStartLimit = absl::Seconds(60);
// A preview, a dry run, or an inspection of a small dataset, from its start.
inline constexpr absl::Duration kShortHelperLimit = absl::Seconds(30);
// A child that could not be started for want of descriptors, processes or
// memory is tried again after this.
inline constexpr absl::Duration kHelperRetryDelay = absl::Seconds(1);

// A child that somebody else killed (SIGKILL: the kernel, where memory has run
// out) is started again, until so many of one piece of work have died.
inline constexpr int kMaxHelperDeaths = 3;

// A dataset up to this size counts as read in a short time.
inline constexpr uint64_t kShortDatasetBytes = 1 << 20;

// How many run at once: previews, dry runs and small datasets have slots of
// their own, and nobody has all of a lane's.
inline constexpr size_t kShortInspections = 4;
inline constexpr size_t kLongInspections = 3;
inline constexpr size_t kInspectionsEach = 2;  // of one caller, in each lane
// How many may wait, in each lane.
inline constexpr size_t kWaitingInspections = 64;
inline constexpr size_t kWaitingInspectionsEach = 16;
// Jobs being validated; the short lane has small datasets.
inline constexpr size_t kShortValidations = 3;
inline constexpr size_t kLongValidations = 3;
inline constexpr size_t kValidationsEach = 2;  // of one caller, in each lane
// A job whose data is ready is queued behind those submitted before it that are
// being validated, if these began less than this ago.
inline constexpr absl::Duration kValidationOrderLimit = absl::Seconds(10);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_HELPER_LIMITS_H_
