// The buffers that rounds share: tokens, labels, positions, activations at
// stage boundaries and their gradients, with a word each, in two sets by the
// parity of the round (scheduler/dispatch/dispatcher.h).
//
// A boundary l is the input of layer l.  Which exist follows from the plan:
// the first layer of every stage.  Buffers are made for the largest micro-batch
// of the job; smaller ones use their beginning.  Words only rise and start at
// 0.  The contribution buffers of the same plan come with them.  Runs on the
// event loop's thread.
#ifndef ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_
#define ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/layout.h"
#include "scheduler/plan/plan.h"
#include "server/arena/host_arena.h"
#include "server/planning/contribution_buffers.h"

namespace roundhouse {

inline constexpr int kBufferSets = 2;

struct RoundBuffersOptions {
  Plan plan;
  int micro_batches = 1;   // of the largest round
  int64_t rows = 1;        // of the largest micro-batch
  int64_t row_tokens = 1;  // of the longest row
  int64_t hidden_size = 1;
  DType dtype = DType::kF32;
  // Whether the gradient of boundary 0 is wanted: the embedding trains.
  bool input_gradient = true;
  // Rows hold several sequences, and positions say where each begins.
  bool packed = false;
  ContributionOptions contributions;
};

// What RoundBuffers::Create takes from the arena, in bytes, without
// contributions (ContributionBytes).
uint64_t RoundBuffersBytes(const RoundBuffersOptions& options);

class RoundBuffers {
 public:
  // In place of `before`, of the same job and another plan, unless it is null:
  // takes over its contribution buffers where this plan has as many.
  static absl::StatusOr<std::unique_ptr<RoundBuffers>> Create(
      HostArena& arena, const RoundBuffersOptions& options,
      const RoundBuffers* before = nullptr);

  struct Buffer {
    uint64_t offset = 0;
    uint64_t word_offset = 0;
  };

  // REQUIRES: the plan has a stage that begins at `boundary` (checked).
  Buffer Activation(int set, int boundary, int micro_batch) const;
  // REQUIRES: a backward or fused stage begins there, and it is wanted
  // (checked).
  Buffer Gradient(int set, int boundary, int micro_batch) const;
  bool HasActivation(int boundary) const {
    return map_.activations.count(boundary) != 0;
  }
  // Raised when the round's gather begins.
  uint64_t GatherWord(int set) const;
  // int32, [rows, row_tokens] of the micro-batch.
  uint64_t Tokens(int set, int micro_batch) const;
  uint64_t Labels(int set, int micro_batch) const;
  // REQUIRES: options().packed (checked).
  uint64_t Positions(int set, int micro_batch) const;

  const ContributionBuffers& contributions() const { return *contributions_; }

  const RoundBuffersOptions& options() const { return options_; }
  // Without contributions.
  uint64_t host_bytes() const { return range_.bytes(); }

 private:
  // Where everything lies, relative to the range.
  struct Map {
    std::map<int, int> activations;  // boundary -> index
    std::map<int, int> gradients;
    uint64_t activation_bytes = 0;  // one buffer
    uint64_t token_bytes = 0;       // one buffer
    uint64_t token_buffers = 2;     // tokens, labels, positions where packed
    uint64_t micro_batch_bytes = 0;
    uint64_t total_bytes = 0;
  };
  static Map MakeMap(const RoundBuffersOptions& options);
  friend uint64_t RoundBuffersBytes(const RoundBuffersOptions& options);

  RoundBuffers(const RoundBuffersOptions& options, Map map)
      : options_(options), map_(std::move(map)) {}

  // The start of a micro-batch's part: words, tokens, labels, positions where
  // packed, activations, gradients.
  uint64_t MicroBatchOffset(int set, int micro_batch) const;

  const RoundBuffersOptions options_;
  const Map map_;
  ArenaRange range_;
  // Shared: those of the next plan may go on with them.
  std::shared_ptr<const ContributionBuffers> contributions_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_
