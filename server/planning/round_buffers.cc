#include "server/planning/round_buffers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/model/config.h"
#include "base/status.h"
#include "base/wire/words.h"

namespace roundhouse {
namespace {

uint64_t Align(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t BlockBytes(const RoundBuffersOptions& options) {
  return Align(static_cast<uint64_t>(options.rows) * options.row_tokens *
               options.hidden_size * DTypeBytes(options.dtype));
}

}  // namespace

uint64_t MoreBytesFor(const Plan& plan, const RoundBuffersOptions& have,
                      const ContributionBlocks& sums) {
  const int64_t more =
      LeastBoundaryTensors(plan, have.row_gradient) - have.boundary_tensors;
  const uint64_t bytes = static_cast<uint64_t>(std::max<int64_t>(0, more)) *
                         BoundaryTensorBytes(have);
  return Suffice(sums, plan, have.contributions)
             ? bytes
             : bytes + ContributionBytes(plan, have.contributions);
}

uint64_t BoundaryTensorBytes(const RoundBuffersOptions& options) {
  return static_cast<uint64_t>(options.micro_batches) * BlockBytes(options);
}

RoundBuffers::Map RoundBuffers::MakeMap(const RoundBuffersOptions& options) {
  Map map;
  const uint64_t micro_batches =
      static_cast<uint64_t>(kBufferSets) * options.micro_batches;
  map.micro_batch_words =
      kBoundaryValues * static_cast<uint64_t>(options.layers) +
      static_cast<uint64_t>(options.expert_layers);
  map.tokens_offset = (micro_batches * map.micro_batch_words + kBufferSets) *
                      sizeof(wire::Word);
  map.token_buffers = options.packed ? 3 : 2;
  map.token_bytes = Align(static_cast<uint64_t>(options.rows) *
                          options.row_tokens * sizeof(int32_t));
  map.picks_offset =
      map.tokens_offset + micro_batches * map.token_buffers * map.token_bytes;
  map.pick_bytes =
      Align(PickBytes(options.expert_layers, options.rows * options.row_tokens,
                      options.experts_per_token));
  map.loads_offset = map.picks_offset + micro_batches * map.pick_bytes;
  map.load_bytes =
      Align(LoadBytes(options.expert_layers, options.expert_count));
  map.blocks_offset = map.loads_offset + micro_batches * map.load_bytes;
  map.block_bytes = BlockBytes(options);
  map.total_bytes =
      map.blocks_offset + static_cast<uint64_t>(options.boundary_tensors) *
                              BoundaryTensorBytes(options);
  return map;
}

uint64_t RoundBuffersBytes(const RoundBuffersOptions& options) {
  return RoundBuffers::MakeMap(options).total_bytes;
}

absl::StatusOr<std::unique_ptr<RoundBuffers>> RoundBuffers::Create(
    HostArena& arena, const RoundBuffersOptions& options) {
  auto buffers = std::unique_ptr<RoundBuffers>(new RoundBuffers(options));
  auto memory = std::make_shared<Memory>();
  memory->map = MakeMap(options);
  memory->blocks = options.boundary_tensors * options.micro_batches;
  ASSIGN_OR_RETURN(memory->range,
                   ArenaRange::Allocate(arena, memory->map.total_bytes));
  buffers->memory_ = std::move(memory);
  ASSIGN_OR_RETURN(
      buffers->contributions_,
      ContributionBuffers::Create(arena, options.plan, options.contributions));
  return buffers;
}

absl::StatusOr<std::unique_ptr<RoundBuffers>> RoundBuffers::WithPlan(
    HostArena& arena, const Plan& plan, const RoundBuffers& before,
    uint64_t bytes) {
  auto buffers =
      std::unique_ptr<RoundBuffers>(new RoundBuffers(before.options()));
  buffers->options_.plan = plan;
  buffers->memory_ = before.memory_;
  buffers->more_ = before.more_;
  buffers->contributions_ = before.contributions_;
  RETURN_IF_ERROR(buffers->Change(arena, bytes));
  return buffers;
}

absl::Status RoundBuffers::Change(HostArena& arena, uint64_t bytes) {
  const Plan& plan = options_.plan;
  const ContributionOptions& sums = options_.contributions;
  const int64_t want =
      BoundaryTensors(plan, options_.row_gradient, sums.slots_ahead);
  DropTensors(want);
  const int64_t have = options_.boundary_tensors;
  const int64_t needed = std::max<int64_t>(
      0, LeastBoundaryTensors(plan, options_.row_gradient) - have);
  const bool needs_sums = !Suffice(contributions_->blocks(), plan, sums);
  const uint64_t tensor_bytes = BoundaryTensorBytes(options_);
  const uint64_t sum_bytes = ContributionBytes(plan, sums);
  const uint64_t needed_bytes =
      MoreBytesFor(plan, options_, contributions_->blocks());
  if (needed_bytes > bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        needed_bytes, " bytes are needed, ", bytes, " may be taken"));
  }
  if (needs_sums) RETURN_IF_ERROR(NewSums(arena));
  const uint64_t left = bytes - needed_bytes;
  const int64_t more =
      std::min(want - have, needed + static_cast<int64_t>(left / tensor_bytes));
  if (more > 0) {
    const absl::Status added = AddTensors(arena, more);
    return needed > 0 ? added : absl::OkStatus();
  }
  const bool other_sums = contributions_->blocks() != BlocksOf(plan, sums);
  // It goes on with the old ones where there is no room.
  if (other_sums && sum_bytes <= left) NewSums(arena).IgnoreError();
  return absl::OkStatus();
}

absl::Status RoundBuffers::AddTensors(HostArena& arena, int64_t tensors) {
  auto more = std::make_shared<MoreBlocks>();
  more->blocks = tensors * options_.micro_batches;
  ASSIGN_OR_RETURN(more->range, ArenaRange::Allocate(
                                    arena, static_cast<uint64_t>(tensors) *
                                               BoundaryTensorBytes(options_)));
  more_.push_back(std::move(more));
  options_.boundary_tensors += tensors;
  return absl::OkStatus();
}

// Gives back what was added for another plan, where this one wants none of it.
void RoundBuffers::DropTensors(int64_t want) {
  while (!more_.empty()) {
    const int64_t tensors = more_.back()->blocks / options_.micro_batches;
    if (options_.boundary_tensors - tensors < want) return;
    options_.boundary_tensors -= tensors;
    more_.pop_back();
  }
}

absl::Status RoundBuffers::NewSums(HostArena& arena) {
  ASSIGN_OR_RETURN(contributions_,
                   ContributionBuffers::Create(arena, options_.plan,
                                               options_.contributions));
  return absl::OkStatus();
}

uint64_t RoundBuffers::host_bytes() const {
  uint64_t bytes = memory_->range.bytes();
  for (const auto& more : more_) bytes += more->range.bytes();
  return bytes;
}

uint64_t RoundBuffers::Index(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(set >= 0 && set < kBufferSets && micro_batch >= 0 &&
                   micro_batch < options_.micro_batches)
      << "set " << set << " micro-batch " << micro_batch;
  return static_cast<uint64_t>(set) * options_.micro_batches + micro_batch;
}

uint64_t RoundBuffers::Block(int block) const {
  ROUNDHOUSE_CHECK(block >= 0 && block < block_count())
      << "block " << block << " of " << block_count();
  const uint64_t bytes = memory_->map.block_bytes;
  int64_t index = block;
  if (index < memory_->blocks) {
    return memory_->range.offset() + memory_->map.blocks_offset + index * bytes;
  }
  index -= memory_->blocks;
  auto more = more_.begin();
  for (; index >= (*more)->blocks; ++more) index -= (*more)->blocks;
  return (*more)->range.offset() + index * bytes;
}

uint64_t RoundBuffers::Word(int set, BoundaryValue value, int boundary,
                            int micro_batch) const {
  ROUNDHOUSE_CHECK(boundary >= 0 && boundary < options_.layers) << boundary;
  const uint64_t words =
      Index(set, micro_batch) * memory_->map.micro_batch_words;
  const auto kind = static_cast<uint64_t>(value);
  return memory_->range.offset() +
         (words + kind * options_.layers + boundary) * sizeof(wire::Word);
}

uint64_t RoundBuffers::GatherWord(int set) const {
  ROUNDHOUSE_CHECK(set >= 0 && set < kBufferSets) << set;
  return memory_->range.offset() + memory_->map.tokens_offset -
         (kBufferSets - set) * sizeof(wire::Word);
}

uint64_t RoundBuffers::TokenBuffer(int set, int micro_batch,
                                   uint64_t buffer) const {
  return memory_->range.offset() + memory_->map.tokens_offset +
         (Index(set, micro_batch) * memory_->map.token_buffers + buffer) *
             memory_->map.token_bytes;
}

uint64_t RoundBuffers::Tokens(int set, int micro_batch) const {
  return TokenBuffer(set, micro_batch, 0);
}

uint64_t RoundBuffers::Labels(int set, int micro_batch) const {
  return TokenBuffer(set, micro_batch, 1);
}

uint64_t RoundBuffers::Positions(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(options_.packed);
  return TokenBuffer(set, micro_batch, 2);
}

uint64_t RoundBuffers::Picks(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(options_.expert_layers > 0);
  return memory_->range.offset() + memory_->map.picks_offset +
         Index(set, micro_batch) * memory_->map.pick_bytes;
}

uint64_t RoundBuffers::Loads(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(options_.expert_layers > 0);
  return memory_->range.offset() + memory_->map.loads_offset +
         Index(set, micro_batch) * memory_->map.load_bytes;
}

uint64_t RoundBuffers::PickWord(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(options_.expert_layers > 0);
  const uint64_t words =
      Index(set, micro_batch) * memory_->map.micro_batch_words;
  return memory_->range.offset() +
         (words + static_cast<uint64_t>(kBoundaryValues) * options_.layers) *
             sizeof(wire::Word);
}

}  // namespace roundhouse
