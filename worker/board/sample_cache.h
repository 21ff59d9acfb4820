// What a device worker keeps of a sample between its commands: the keys and
// values of the tokens that have gone through the model.  It only saves time:
// whoever finds it gone or too short computes from the tokens again.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_BOARD_SAMPLE_CACHE_H_
#define ROUNDHOUSE_WORKER_BOARD_SAMPLE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/wire/messages.h"
#include "worker/board/job_tables.h"
#include "worker/board/sample_plan.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

struct SampleCache {
  struct Sequence {
    std::unique_ptr<DeviceBuffer> memory;  // KeyValueLayout of capacity_tokens
    int64_t capacity_tokens = 0;
    // Whose keys and values are there.  One that differs from here on in a
    // later command is computed again from there on.
    std::vector<int32_t> tokens;

    // Makes room for `capacity` tokens and keeps those that `wanted` begins
    // with, all but its last one: that one's logits are wanted.
    absl::Status Prepare(const std::vector<int32_t>& wanted, int64_t capacity,
                         const JobTables& tables, Device& device,
                         Stream& stream);
  };

  uint64_t bytes() const;  // of device memory
  bool Holds(uint64_t of_job, uint64_t of_sample) const {
    return job == of_job && sample == of_sample;
  }
  // Drops what is not the command's sample's, sequences that it does not go on
  // with, and those whose memory is more than planned.
  void Prune(const wire::RunSample& command, const SamplePlan& plan);

  uint64_t job = 0;
  uint64_t sample = 0;
  // Where each unit's weights lay and their version: of others it is useless.
  std::vector<wire::WordRef> weights;
  std::map<uint32_t, Sequence> sequences;  // by number
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SAMPLE_CACHE_H_
