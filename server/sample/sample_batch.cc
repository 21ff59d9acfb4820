#include "server/sample/sample_batch.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/weights/unit_layout.h"

namespace roundhouse {
namespace {

uint64_t TokenBytes(int64_t tokens) {
  return static_cast<uint64_t>(tokens) * sizeof(int32_t);
}

absl::Status Nonsense(const std::string& what) {
  return absl::InternalError(absl::StrCat("a device answered ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleBatch>> SampleBatch::Create(
    HostArena& arena, const SampleBatchOptions& options,
    const std::vector<SamplePrompt>& prompts) {
  std::unique_ptr<SampleBatch> batch(new SampleBatch(arena, options));
  LayoutCursor cursor(0);
  for (const SamplePrompt& prompt : prompts) {
    const auto tokens = static_cast<int64_t>(prompt.tokens.size());
    const uint64_t offset =
        cursor.Take(TokenBytes(tokens + options.max_new_tokens));
    batch->sequences_.push_back({prompt.number, tokens, tokens, offset});
  }
  ASSIGN_OR_RETURN(batch->range_, ArenaRange::Allocate(arena, cursor.bytes()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    Sequence& sequence = batch->sequences_[i];
    sequence.offset += batch->range_.offset();
    std::copy(
        prompts[i].tokens.begin(), prompts[i].tokens.end(),
        arena.arena().At<int32_t>(sequence.offset, prompts[i].tokens.size()));
  }
  return batch;
}

std::vector<int> SampleBatch::Active() const {
  std::vector<int> active;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].end == SampleEnd::kNone) {
      active.push_back(static_cast<int>(i));
    }
  }
  return active;
}

int64_t SampleBatch::RoomTokens(const Sequence& sequence) const {
  return std::min(options_.max_new_tokens + sequence.prompt_tokens,
                  options_.max_position_tokens) -
         sequence.tokens;
}

int64_t SampleBatch::NewTokens() const {
  int64_t tokens = kSampleCommandTokens;
  for (int i : Active()) {
    tokens = std::min(tokens, RoomTokens(sequences_[i]));
  }
  return tokens;
}

wire::RunSample SampleBatch::Command() const {
  wire::RunSample command;
  command.job = options_.job;
  command.sample = options_.sample;
  command.new_tokens = static_cast<uint32_t>(NewTokens());
  command.temperature = options_.temperature;
  command.seed = options_.seed;
  command.units = options_.units;
  command.end_tokens = options_.end_tokens;
  for (int i : Active()) {
    const Sequence& sequence = sequences_[i];
    command.sequences.push_back(
        {.number = static_cast<uint32_t>(sequence.number),
         .prompt_tokens = static_cast<uint32_t>(sequence.prompt_tokens),
         .tokens = {sequence.offset, TokenBytes(sequence.tokens)}});
  }
  return command;
}

absl::Status SampleBatch::Check(const wire::SampleDone& done) const {
  const size_t active = Active().size();
  const uint64_t all =
      std::accumulate(done.counts.begin(), done.counts.end(), uint64_t{0});
  if (done.counts.size() != active || all != done.tokens.size()) {
    return Nonsense(absl::StrCat(done.counts.size(), " sequences of ", all,
                                 " tokens in ", done.tokens.size(), " for ",
                                 active));
  }
  for (const uint32_t count : done.counts) {
    if (count >= 1 && count <= static_cast<uint64_t>(NewTokens())) continue;
    return Nonsense(
        absl::StrCat(count, " tokens, asked for ", NewTokens(), " at most"));
  }
  for (const int32_t token : done.tokens) {
    if (token >= 0 && token < options_.vocab_size) continue;
    return Nonsense(absl::StrCat("token ", token, " of ", options_.vocab_size));
  }
  return absl::OkStatus();
}

void SampleBatch::Append(Sequence& sequence,
                         const std::vector<int32_t>& tokens) {
  std::copy(tokens.begin(), tokens.end(),
            arena_.arena().At<int32_t>(
                sequence.offset + TokenBytes(sequence.tokens), tokens.size()));
  sequence.tokens += static_cast<int64_t>(tokens.size());
  const bool ended =
      std::find(options_.end_tokens.begin(), options_.end_tokens.end(),
                tokens.back()) != options_.end_tokens.end();
  const int64_t drawn = sequence.tokens - sequence.prompt_tokens;
  if (ended) {
    sequence.end = SampleEnd::kEndToken;
  } else if (drawn == options_.max_new_tokens) {
    sequence.end = SampleEnd::kMaxNewTokens;
  } else if (sequence.tokens == options_.max_position_tokens) {
    sequence.end = SampleEnd::kContextFull;
  }
}

absl::StatusOr<std::vector<SamplePiece>> SampleBatch::Accept(
    const wire::SampleDone& done) {
  RETURN_IF_ERROR(Check(done));
  accepted_ = true;
  std::vector<SamplePiece> pieces;
  auto next = done.tokens.begin();
  const std::vector<int> active = Active();
  for (size_t i = 0; i < active.size(); ++i) {
    Sequence& sequence = sequences_[active[i]];
    SamplePiece piece;
    piece.prompt = sequence.number;
    piece.tokens.assign(next, next + done.counts[i]);
    next += done.counts[i];
    Append(sequence, piece.tokens);
    piece.end = sequence.end;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace roundhouse
