#include "worker/sample/sample_computation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "worker/board/compute_clock.h"
#include "worker/model/token_draw.h"

namespace roundhouse::worker {
namespace {

// Host memory holds at most this many logits at a time, in fp32, unless one
// sequence has more.
constexpr size_t kMaxLogits = size_t{1} << 24;

}  // namespace

SampleComputation::SampleComputation(const SampleContext& context,
                                     SampleState& sample, SampleCache& cache)
    : context_(context),
      sample_(sample),
      command_(sample.command),
      tables_(*sample.tables),
      cache_(cache),
      uploads_(context.board, context.uploads, context.device, context.arena,
               sample) {}

absl::StatusOr<wire::SampleDone> SampleComputation::Run() {
  absl::StatusOr<wire::SampleDone> done = Draw();
  // As SlotComputation::Run.
  const absl::Status drained = Drain(context_.stream);
  if (!drained.ok()) return drained;
  return done;
}

absl::StatusOr<wire::SampleDone> SampleComputation::Draw() {
  wire::SampleDone done{.sample = command_.sample, .started_ns = MonotonicNs()};
  RETURN_IF_ERROR(MatchWeights());
  RETURN_IF_ERROR(PrepareSequences());
  RETURN_IF_ERROR(PrepareMemory());
  for (std::vector<Pass> passes = NextPasses(); !passes.empty();
       passes = NextPasses()) {
    for (const Pass& pass : passes) RETURN_IF_ERROR(RunPass(pass));
  }
  for (const Sequence& sequence : sequences_) {
    done.counts.push_back(static_cast<uint32_t>(sequence.drawn.size()));
    done.tokens.insert(done.tokens.end(), sequence.drawn.begin(),
                       sequence.drawn.end());
    if (sequence.ended) cache_.sequences.erase(sequence.number);
  }
  done.weight_bytes =
      sample_.stats.bytes[static_cast<int>(wire::Direction::kH2D)]
                         [static_cast<int>(wire::Purpose::kWeights)];
  done.ended_ns = MonotonicNs();
  return done;
}

// Drops what other weights computed.
absl::Status SampleComputation::MatchWeights() {
  std::vector<wire::WordRef> weights;
  for (size_t u = 0; u < command_.units.size(); ++u) {
    const wire::SlotUnit& unit = command_.units[u];
    uint64_t version = 0;
    if (unit.version.offset != 0) {
      const wire::Word& word = context_.arena.WordAt(unit.version.offset);
      version = word.value.load();
      if (version < unit.version.value) {
        return absl::FailedPreconditionError(absl::StrCat(
            "sample ", command_.sample, ": units[", u, "], unit ", unit.unit,
            ", is at version ", version, ", not yet at ", unit.version.value));
      }
    }
    weights.push_back({unit.weights.offset, version});
  }
  const bool same =
      std::equal(weights.begin(), weights.end(), cache_.weights.begin(),
                 cache_.weights.end(), [](const auto& a, const auto& b) {
                   return a.offset == b.offset && a.value == b.value;
                 });
  if (!same) cache_.sequences.clear();
  cache_.job = command_.job;
  cache_.sample = command_.sample;
  cache_.weights = std::move(weights);
  return absl::OkStatus();
}

absl::Status SampleComputation::PrepareSequences() {
  for (size_t s = 0; s < command_.sequences.size(); ++s) {
    const wire::SampleSequence& given = command_.sequences[s];
    const PlannedSequence& planned = sample_.plan.sequences[s];
    const auto count = static_cast<uint32_t>(planned.tokens.size());
    Sequence sequence{.number = given.number,
                      .drawn_before = count - given.prompt_tokens,
                      .ended = planned.capacity_tokens == 0,
                      .tokens = planned.tokens};
    if (!sequence.ended) {
      sequence.cache = &cache_.sequences[given.number];
      RETURN_IF_ERROR(
          sequence.cache->Prepare(planned.tokens, planned.capacity_tokens,
                                  tables_, context_.device, context_.stream));
    }
    sequences_.push_back(std::move(sequence));
  }
  return absl::OkStatus();
}

absl::Status SampleComputation::PrepareMemory() {
  if (sample_.plan.row_bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(rows_, context_.device.Allocate(sample_.plan.row_bytes,
                                                   "embedding rows"));
  gathered_.resize(sample_.plan.row_bytes);
  ASSIGN_OR_RETURN(
      run_, context_.make_generation({.config = tables_.config,
                                      .adapter = tables_.adapter,
                                      .dtype = tables_.dtype,
                                      .stream = context_.stream.native()}));
  for (size_t layer = 0; sample_.resident && layer <= head_layer(); ++layer) {
    RETURN_IF_ERROR(uploads_.StartLayer(layer));
  }
  return absl::OkStatus();
}

std::vector<SampleComputation::Pass> SampleComputation::NextPasses() {
  std::vector<Pass> passes;
  size_t tokens = 0;
  for (Sequence& sequence : sequences_) {
    if (sequence.ended || sequence.drawn.size() == command_.new_tokens) {
      continue;
    }
    tokens += sequence.new_tokens();
    if (passes.empty() || tokens > kMaxPassTokens) {
      passes.emplace_back();
      tokens = sequence.new_tokens();
    }
    passes.back().push_back(&sequence);
  }
  return passes;
}

absl::Status SampleComputation::RunPass(const Pass& pass) {
  RETURN_IF_ERROR(SetInput(pass));
  RETURN_IF_ERROR(RunLayers());
  RETURN_IF_ERROR(uploads_.StartLayer(head_layer()));
  ASSIGN_OR_RETURN(const LayerWeights head, uploads_.AwaitLayer(head_layer()));
  for (Sequence* sequence : pass) sequence->cache->tokens = sequence->tokens;
  RETURN_IF_ERROR(DrawTokens(pass, head));
  if (!sample_.resident) uploads_.ReleaseLayer(head_layer());
  return absl::OkStatus();
}

absl::Status SampleComputation::SetInput(const Pass& pass) {
  const uint64_t row_bytes = static_cast<uint64_t>(tables_.config.hidden_size) *
                             DTypeBytes(tables_.dtype);
  std::vector<SequenceStep> steps;
  uint64_t bytes = 0;
  for (const Sequence* sequence : pass) {
    const size_t cached = sequence->cache->tokens.size();
    steps.push_back(
        {.cache = sequence->cache->memory->data(),
         .capacity_tokens = sequence->cache->capacity_tokens,
         .cached_tokens = static_cast<int64_t>(cached),
         .new_tokens = static_cast<int64_t>(sequence->new_tokens())});
    for (size_t i = cached; i < sequence->tokens.size(); ++i) {
      const auto token = static_cast<uint64_t>(sequence->tokens[i]);
      std::memcpy(gathered_.data() + bytes,
                  sample_.plan.embedding + token * row_bytes, row_bytes);
      bytes += row_bytes;
    }
  }
  RETURN_IF_ERROR(uploads_.CopyRows(gathered_.data(), bytes, *rows_));
  return run_->SetInput(rows_->data(), steps);
}

absl::Status SampleComputation::RunLayers() {
  RETURN_IF_ERROR(uploads_.StartLayer(0));
  for (size_t layer = 0; layer < head_layer(); ++layer) {
    ASSIGN_OR_RETURN(const LayerWeights weights, uploads_.AwaitLayer(layer));
    RETURN_IF_ERROR(uploads_.StartLayer(layer + 1));
    RETURN_IF_ERROR(run_->ForwardLayer(static_cast<int64_t>(layer), weights));
    if (sample_.resident) continue;
    RETURN_IF_ERROR(Drain(context_.stream));
    uploads_.ReleaseLayer(layer);
  }
  return absl::OkStatus();
}

absl::Status SampleComputation::DrawTokens(const Pass& pass,
                                           const LayerWeights& head) {
  const auto vocab = static_cast<size_t>(tables_.config.vocab_size);
  const size_t at_once = std::max<size_t>(1, kMaxLogits / vocab);
  for (size_t first = 0; first < pass.size(); first += at_once) {
    const size_t count = std::min(at_once, pass.size() - first);
    logits_.resize(count * vocab);
    RETURN_IF_ERROR(run_->Logits(head, first, count, logits_.data()));
    for (size_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(DrawToken(logits_.data() + i * vocab, *pass[first + i]));
    }
  }
  return absl::OkStatus();
}

absl::Status SampleComputation::DrawToken(const float* logits,
                                          Sequence& sequence) {
  const DrawKey key{.seed = command_.seed,
                    .sequence = sequence.number,
                    .index = sequence.drawn_before +
                             static_cast<uint32_t>(sequence.drawn.size())};
  const auto token = worker::DrawToken(logits, tables_.config.vocab_size,
                                       command_.temperature, key);
  if (!token.ok()) {
    return absl::Status(
        token.status().code(),
        absl::StrCat("sample ", command_.sample, ": sequence ", sequence.number,
                     ", position ", sequence.tokens.size(), ": ",
                     std::string(token.status().message())));
  }
  sequence.tokens.push_back(*token);
  sequence.drawn.push_back(*token);
  sequence.ended =
      std::find(command_.end_tokens.begin(), command_.end_tokens.end(),
                *token) != command_.end_tokens.end() ||
      static_cast<int64_t>(sequence.tokens.size()) ==
          tables_.config.max_position_tokens;
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
