// What a RunSample command amounts to on a device: checked against the job's
// tables and the arena, its tokens copied out, with the device memory it needs.
// Immutable once made.
#ifndef ROUNDHOUSE_WORKER_BOARD_SAMPLE_PLAN_H_
#define ROUNDHOUSE_WORKER_BOARD_SAMPLE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/board/job_tables.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// Tokens that go through the model at once, unless one sequence alone has more.
inline constexpr uint64_t kMaxPassTokens = 2048;

struct PlannedSequence {
  std::vector<int32_t> tokens;  // the prompt and what was drawn so far
  // Tokens that will have gone through the model at the command's end.  0: it
  // ended before this command, by an end token or the model's last position.
  int64_t capacity_tokens = 0;
};

struct SamplePlan {
  std::vector<PlannedSequence> sequences;          // as RunSample::sequences
  std::vector<std::vector<uint32_t>> layer_units;  // by layer, indices of units
  const std::byte* embedding = nullptr;  // [vocab, hidden], in the arena
  // Device memory.
  uint64_t row_bytes = 0;            // embedding rows of the largest pass
  uint64_t weight_bytes = 0;         // of all layers
  uint64_t largest_layer_bytes = 0;  // weights of one
  uint64_t cache_bytes = 0;          // keys and values of all sequences
  uint64_t largest_cache_bytes = 0;  // of one: a cache grows by copying
  // What a library computes with, at most; 0 where that is not of the limit.
  uint64_t working_bytes = 0;

  // With all weights, and with those of two layers at a time.
  uint64_t resident_bytes() const { return device_bytes(weight_bytes); }
  uint64_t streamed_bytes() const {
    return device_bytes(2 * largest_layer_bytes);
  }
  uint64_t least_bytes() const;

 private:
  uint64_t device_bytes(uint64_t weights) const;
};

// The command lists each layer's units, as a slot of all layers would, and the
// embedding as unit 0 of layer 0, unless the tied head lists it.
// INVALID_ARGUMENT naming field and entry: layers without their units, a buffer
// or word outside the arena, a token that the vocabulary lacks, a sequence
// twice, longer than the model's positions or shorter than its prompt, more
// tokens to draw than an answer carries, a temperature without meaning.
// RESOURCE_EXHAUSTED: the embedding rows, two layers' weights, the keys and
// values and what computes need more than the device has.
absl::StatusOr<SamplePlan> PlanSample(const wire::RunSample& command,
                                      const JobTables& tables,
                                      const wire::Arena& arena,
                                      const DeviceMemory& memory);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SAMPLE_PLAN_H_
