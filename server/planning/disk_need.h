// What a job writes to disk, from its spec and its model alone.
//
// Pure functions.  Bytes of tensors: headers, texts and the tokenizer's files
// are some kilobytes more.
#ifndef ROUNDHOUSE_SERVER_PLANNING_DISK_NEED_H_
#define ROUNDHOUSE_SERVER_PLANNING_DISK_NEED_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/model/config.h"
#include "server/spec/spec.h"

namespace roundhouse {

struct DiskNeed {
  uint64_t checkpoint_bytes = 0;  // each
  int64_t checkpoint_count = 0;   // at once, at most
  uint64_t export_bytes = 0;
  // All of it together; the largest number where it is more.
  uint64_t total_bytes() const;
};

// Checkpoints that lie on the disk at once: save_total_limit, one for the best,
// and the one being written; never more than the job saves.  Without a limit
// all that it saves; where its steps follow from the dataset, which is not read
// yet, the last one.  `start_step`: of the checkpoint it goes on from, or 0.
int64_t CheckpointsAtOnce(const JobSpec& spec, int64_t start_step);

DiskNeed DiskNeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                    int64_t start_step);

// kResourceExhausted (STORAGE_FULL) naming the bytes needed, those free and
// `directory` when what the job needs is not free there.
absl::Status CheckDisk(const DiskNeed& need, uint64_t free_bytes,
                       const std::string& directory);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_DISK_NEED_H_
