// The memory that a job's rounds share: tokens, labels, positions and picks of
// experts of two rounds, by the parity of the round
// (scheduler/dispatch/dispatcher.h), and blocks for the activations at
// boundaries of stages and their gradients, of which the Dispatcher says who
// has which (scheduler/plan/boundary_tensors.h).
//
// A boundary l is the input of layer l.  Words are of a set, a value, a
// boundary and a micro-batch, not of a block: a slot that is sent again must
// not take the word of the block's next user for its own.  They only rise, and
// start at 0.  All are made for the largest micro-batch of the job; smaller
// ones use their beginning.  Nothing of it depends on the plan but the number
// of blocks and the contribution buffers that come with it: another plan of the
// job goes on with all of it, and with more blocks where it wants them and
// there is room.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_
#define ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/layout.h"
#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/plan.h"
#include "server/arena/host_arena.h"
#include "server/planning/contribution_buffers.h"

namespace roundhouse {

inline constexpr int kBufferSets = 2;

struct RoundBuffersOptions {
  Plan plan;
  int layers = 1;          // of plans: boundaries are 0 to layers - 1
  int micro_batches = 1;   // of the largest round
  int64_t rows = 1;        // of the largest micro-batch
  int64_t row_tokens = 1;  // of the longest row
  int64_t hidden_size = 1;
  DType dtype = DType::kF32;
  // Blocks for each of a round's micro-batches (FittingTensors).
  int64_t boundary_tensors = 1;
  // Whether the gradient of boundary 0 is wanted: the embedding trains.
  RowGradient row_gradient = RowGradient::kRead;
  // Rows hold several sequences, and positions say where each begins.
  bool packed = false;
  // Layers with experts: what their tokens picked is kept from the forward slot
  // to the backward one.
  int expert_layers = 0;
  int64_t experts_per_token = 0;
  int64_t expert_count = 0;
  ContributionOptions contributions;
};

// Room for one tensor of each of a round's micro-batches.
uint64_t BoundaryTensorBytes(const RoundBuffersOptions& options);
// What a job with such buffers and blocks for sums needs more of the arena for
// another plan, in bytes, however few slots are sent ahead.
uint64_t MoreBytesFor(const Plan& plan, const RoundBuffersOptions& have,
                      const ContributionBlocks& sums);

// What RoundBuffers::Create takes from the arena, in bytes, without
// contributions (ContributionBytes).
uint64_t RoundBuffersBytes(const RoundBuffersOptions& options);

class RoundBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<RoundBuffers>> Create(
      HostArena& arena, const RoundBuffersOptions& options);
  // For another plan of the same job, whose slots may begin when those of
  // `before` have ended: with the same memory, more blocks where the plan wants
  // them, fewer where it wants none of those that were added, and other
  // contribution buffers where it has other numbers of them.  What is more than
  // `bytes` it does without, if none of its slots needs it; else
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<RoundBuffers>> WithPlan(
      HostArena& arena, const Plan& plan, const RoundBuffers& before,
      uint64_t bytes);

  // Room for one activation or gradient of a micro-batch.
  uint64_t Block(int block) const;
  int64_t block_count() const {
    return options_.boundary_tensors * options_.micro_batches;
  }
  uint64_t Word(int set, BoundaryValue value, int boundary,
                int micro_batch) const;
  // Raised when the round's gather begins.
  uint64_t GatherWord(int set) const;
  // int32, [rows, row_tokens] of the micro-batch.
  uint64_t Tokens(int set, int micro_batch) const;
  uint64_t Labels(int set, int micro_batch) const;
  // REQUIRES: options().packed (checked).
  uint64_t Positions(int set, int micro_batch) const;
  // Picks of all layers with experts, and the word of the first one; each
  // other's comes next.  REQUIRES: options().expert_layers > 0 (checked).
  uint64_t Picks(int set, int micro_batch) const;
  uint64_t PickWord(int set, int micro_batch) const;
  // How many tokens go to each expert, in the same layers: ExpertLoad,
  // [layers, experts].  REQUIRES: as Picks.
  uint64_t Loads(int set, int micro_batch) const;

  const ContributionBuffers& contributions() const { return *contributions_; }

  const RoundBuffersOptions& options() const { return options_; }
  // Without contributions.
  uint64_t host_bytes() const;

 private:
  // Where everything lies in the range: words of each micro-batch and set (at
  // boundaries, then of picks), gather words, tokens, labels and positions of
  // each, picks of each, loads of each, blocks.
  struct Map {
    uint64_t micro_batch_words = 0;  // of one micro-batch in one set
    uint64_t tokens_offset = 0;
    uint64_t token_bytes = 0;    // of one buffer
    uint64_t token_buffers = 2;  // tokens, labels, positions where packed
    uint64_t picks_offset = 0;
    uint64_t pick_bytes = 0;  // of one micro-batch in one set
    uint64_t loads_offset = 0;
    uint64_t load_bytes = 0;  // likewise
    uint64_t blocks_offset = 0;
    uint64_t block_bytes = 0;
    uint64_t total_bytes = 0;
  };
  struct Memory {
    Map map;
    int64_t blocks = 0;
    ArenaRange range;
  };
  // The blocks after all before them.
  struct MoreBlocks {
    int64_t blocks = 0;
    ArenaRange range;
  };
  static Map MakeMap(const RoundBuffersOptions& options);
  friend uint64_t RoundBuffersBytes(const RoundBuffersOptions& options);

  explicit RoundBuffers(const RoundBuffersOptions& options)
      : options_(options) {}

  absl::Status AddTensors(HostArena& arena, int64_t tensors);
  void DropTensors(int64_t want);
  absl::Status NewSums(HostArena& arena);
  // To what the options' plan wants, for so many bytes more.
  absl::Status Change(HostArena& arena, uint64_t bytes);

  // Counting micro-batches of both sets.
  uint64_t Index(int set, int micro_batch) const;
  uint64_t TokenBuffer(int set, int micro_batch, uint64_t buffer) const;

  RoundBuffersOptions options_;
  // Shared with those of other plans.
  std::shared_ptr<const Memory> memory_;
  std::vector<std::shared_ptr<const MoreBlocks>> more_;
  std::shared_ptr<const ContributionBuffers> contributions_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_ROUND_BUFFERS_H_
