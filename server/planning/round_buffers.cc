#include "server/planning/round_buffers.h"

#include "base/log.h"
#include "base/status.h"
#include "base/wire/words.h"

namespace roundhouse {
namespace {

uint64_t Align(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

RoundBuffers::Map RoundBuffers::MakeMap(const RoundBuffersOptions& options) {
  Map map;
  auto add = [](std::map<int, int>& index, int boundary) {
    index.emplace(boundary, static_cast<int>(index.size()));
  };
  add(map.activations, 0);
  for (const LayerRange& stage : options.plan.forward) {
    add(map.activations, stage.first);
  }
  for (const LayerRange& stage : options.plan.backward) {
    add(map.activations, stage.first);
    if (stage.first > 0 || options.input_gradient) {
      add(map.gradients, stage.first);
    }
  }
  const uint64_t tokens =
      static_cast<uint64_t>(options.rows) * options.row_tokens;
  map.token_buffers = options.packed ? 3 : 2;
  map.token_bytes = Align(tokens * sizeof(int32_t));
  map.activation_bytes =
      Align(tokens * options.hidden_size * DTypeBytes(options.dtype));
  const uint64_t buffers = map.activations.size() + map.gradients.size();
  map.micro_batch_bytes =
      buffers * (sizeof(wire::Word) + map.activation_bytes) +
      map.token_buffers * map.token_bytes;
  map.total_bytes =
      kBufferSets *
      (options.micro_batches * map.micro_batch_bytes + sizeof(wire::Word));
  return map;
}

uint64_t RoundBuffersBytes(const RoundBuffersOptions& options) {
  return RoundBuffers::MakeMap(options).total_bytes;
}

absl::StatusOr<std::unique_ptr<RoundBuffers>> RoundBuffers::Create(
    HostArena& arena, const RoundBuffersOptions& options,
    const RoundBuffers* before) {
  Map map = MakeMap(options);
  const uint64_t bytes = map.total_bytes;
  auto buffers =
      std::unique_ptr<RoundBuffers>(new RoundBuffers(options, std::move(map)));
  ASSIGN_OR_RETURN(buffers->range_, ArenaRange::Allocate(arena, bytes));
  if (before != nullptr && before->contributions_->blocks() ==
                               BlocksOf(options.plan, options.contributions)) {
    buffers->contributions_ = before->contributions_;
    return buffers;
  }
  ASSIGN_OR_RETURN(
      buffers->contributions_,
      ContributionBuffers::Create(arena, options.plan, options.contributions));
  return buffers;
}

uint64_t RoundBuffers::MicroBatchOffset(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(set >= 0 && set < kBufferSets && micro_batch >= 0 &&
                   micro_batch < options_.micro_batches)
      << "set " << set << " micro-batch " << micro_batch;
  return range_.offset() +
         (static_cast<uint64_t>(set) * options_.micro_batches + micro_batch) *
             map_.micro_batch_bytes;
}

RoundBuffers::Buffer RoundBuffers::Activation(int set, int boundary,
                                              int micro_batch) const {
  const uint64_t start = MicroBatchOffset(set, micro_batch);
  const int index = map_.activations.at(boundary);
  const uint64_t words = map_.activations.size() + map_.gradients.size();
  return {start + words * sizeof(wire::Word) +
              map_.token_buffers * map_.token_bytes +
              index * map_.activation_bytes,
          start + index * sizeof(wire::Word)};
}

RoundBuffers::Buffer RoundBuffers::Gradient(int set, int boundary,
                                            int micro_batch) const {
  const uint64_t start = MicroBatchOffset(set, micro_batch);
  const uint64_t index = map_.activations.size() + map_.gradients.at(boundary);
  const uint64_t words = map_.activations.size() + map_.gradients.size();
  return {start + words * sizeof(wire::Word) +
              map_.token_buffers * map_.token_bytes +
              index * map_.activation_bytes,
          start + index * sizeof(wire::Word)};
}

uint64_t RoundBuffers::GatherWord(int set) const {
  ROUNDHOUSE_CHECK(set >= 0 && set < kBufferSets) << set;
  return range_.offset() +
         kBufferSets * options_.micro_batches * map_.micro_batch_bytes +
         set * sizeof(wire::Word);
}

uint64_t RoundBuffers::Tokens(int set, int micro_batch) const {
  const uint64_t words = map_.activations.size() + map_.gradients.size();
  return MicroBatchOffset(set, micro_batch) + words * sizeof(wire::Word);
}

uint64_t RoundBuffers::Labels(int set, int micro_batch) const {
  return Tokens(set, micro_batch) + map_.token_bytes;
}

uint64_t RoundBuffers::Positions(int set, int micro_batch) const {
  ROUNDHOUSE_CHECK(options_.packed);
  return Labels(set, micro_batch) + map_.token_bytes;
}

}  // namespace roundhouse
