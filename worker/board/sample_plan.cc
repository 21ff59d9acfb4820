#include "worker/board/sample_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/model/working_memory.h"
#include "base/status.h"
#include "worker/board/arena_refs.h"
#include "worker/model/key_value_layout.h"

namespace roundhouse::worker {
namespace {

// Sums of sizes from outside: too much stays too much.
uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum < a ? std::numeric_limits<uint64_t>::max() : sum;
}

// Checks a command and fills a plan in, field by field.
class SamplePlanner {
 public:
  SamplePlanner(const wire::RunSample& command, const JobTables& tables,
                const wire::Arena& arena, bool with_libraries)
      : command_(command),
        tables_(tables),
        arena_(arena),
        with_libraries_(with_libraries) {}

  absl::StatusOr<SamplePlan> Plan() {
    RETURN_IF_ERROR(CheckDraws());
    RETURN_IF_ERROR(PlanUnits());
    RETURN_IF_ERROR(
        Named(CheckLayerUnits(tables_, command_.units, 0, plan_.layer_units)));
    RETURN_IF_ERROR(PlanEmbedding());
    RETURN_IF_ERROR(PlanSequences());
    return std::move(plan_);
  }

 private:
  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat("sample ", command_.sample, ": ", args...));
  }
  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status : Bad(std::string(status.message()));
  }
  bool InVocabulary(int32_t token) const {
    return token >= 0 && token < tables_.config.vocab_size;
  }
  bool IsEndToken(int32_t token) const {
    return std::find(command_.end_tokens.begin(), command_.end_tokens.end(),
                     token) != command_.end_tokens.end();
  }

  absl::Status CheckDraws() const;
  absl::Status PlanUnits();
  absl::Status PlanEmbedding();
  absl::Status PlanSequences();
  absl::Status ReadTokens(size_t s);
  void PlanMemory(size_t s);
  void PlanWorking(uint64_t pass_tokens);

  const wire::RunSample& command_;
  const JobTables& tables_;
  const wire::Arena& arena_;
  const bool with_libraries_;
  SamplePlan plan_;
};

absl::Status SamplePlanner::CheckDraws() const {
  if (!(command_.temperature >= 0) || !std::isfinite(command_.temperature)) {
    return Bad("temperature is ", command_.temperature);
  }
  if (command_.sequences.empty()) return Bad("sequences is empty");
  if (command_.new_tokens == 0) return Bad("new_tokens is 0");
  const uint64_t draws =
      uint64_t{command_.sequences.size()} * command_.new_tokens;
  if (draws > wire::kMaxArray) {
    return Bad(command_.sequences.size(), " sequences by ", command_.new_tokens,
               " new_tokens: an answer carries ", wire::kMaxArray, " tokens");
  }
  for (size_t e = 0; e < command_.end_tokens.size(); ++e) {
    if (InVocabulary(command_.end_tokens[e])) continue;
    return Bad("end_tokens[", e, "] is ", command_.end_tokens[e],
               ", the vocabulary has ", tables_.config.vocab_size);
  }
  return absl::OkStatus();
}

absl::Status SamplePlanner::PlanUnits() {
  const auto head = static_cast<uint64_t>(tables_.head_layer());
  plan_.layer_units.resize(head + 1);
  for (size_t u = 0; u < command_.units.size(); ++u) {
    const wire::SlotUnit& unit = command_.units[u];
    const std::string name = absl::StrCat("units[", u, "]");
    if (unit.unit >= tables_.units.size() || unit.layer > head) {
      return Bad(name, " is unit ", unit.unit, " of layer ", unit.layer);
    }
    const uint64_t bytes = tables_.units[unit.unit].element_count *
                           tables_.element_bytes(unit.unit);
    RETURN_IF_ERROR(Named(CheckBuffer(arena_.size_bytes(), unit.weights, bytes,
                                      name + ".weights")));
    RETURN_IF_ERROR(
        Named(CheckWord(arena_.size_bytes(), unit.version, name + ".version")));
    // Layer 0 reads only rows of the embedding.
    if (unit.unit == 0 && unit.layer == 0) continue;
    plan_.layer_units[unit.layer].push_back(static_cast<uint32_t>(u));
  }
  for (const std::vector<uint32_t>& units : plan_.layer_units) {
    uint64_t bytes = 0;
    for (uint32_t u : units) {
      bytes += DeviceBytes(command_.units[u].weights.bytes);
    }
    plan_.weight_bytes += bytes;
    plan_.largest_layer_bytes = std::max(plan_.largest_layer_bytes, bytes);
  }
  return absl::OkStatus();
}

absl::Status SamplePlanner::PlanEmbedding() {
  const auto given =
      std::find_if(command_.units.begin(), command_.units.end(),
                   [](const wire::SlotUnit& unit) { return unit.unit == 0; });
  if (given == command_.units.end()) {
    return Bad("units lists no embedding: unit 0 of layer 0");
  }
  const wire::UnitLayout& unit = tables_.units[0];
  const auto elements = static_cast<uint64_t>(tables_.config.vocab_size) *
                        static_cast<uint64_t>(tables_.config.hidden_size);
  for (uint32_t p = 0; p < unit.parameter_count; ++p) {
    const auto& parameter = tables_.parameters[unit.first_parameter + p];
    if (parameter.role != static_cast<uint32_t>(ParamRole::kEmbedding) ||
        parameter.element_count != elements) {
      continue;
    }
    plan_.embedding = arena_.Bytes(given->weights) +
                      parameter.unit_offset_elements * tables_.element_bytes(0);
    return absl::OkStatus();
  }
  return Bad("unit 0 has no embedding of ", elements, " elements");
}

absl::Status SamplePlanner::PlanSequences() {
  std::set<uint32_t> numbers;
  plan_.sequences.resize(command_.sequences.size());
  uint64_t tokens = 0, longest = 0;
  for (size_t s = 0; s < command_.sequences.size(); ++s) {
    if (!numbers.insert(command_.sequences[s].number).second) {
      return Bad("sequences[", s, "] has number ", command_.sequences[s].number,
                 " again");
    }
    RETURN_IF_ERROR(ReadTokens(s));
    PlanMemory(s);
    const uint64_t count = plan_.sequences[s].tokens.size();
    if (plan_.sequences[s].capacity_tokens == 0) continue;
    tokens += count;
    longest = std::max(longest, count);
  }
  const uint64_t pass = std::min(tokens, std::max(kMaxPassTokens, longest));
  plan_.row_bytes =
      DeviceBytes(pass * static_cast<uint64_t>(tables_.config.hidden_size) *
                  DTypeBytes(tables_.dtype));
  if (with_libraries_) PlanWorking(pass);
  return absl::OkStatus();
}

absl::Status SamplePlanner::ReadTokens(size_t s) {
  const wire::SampleSequence& given = command_.sequences[s];
  const std::string name = absl::StrCat("sequences[", s, "]");
  const uint64_t bytes = given.tokens.bytes;
  const uint64_t count = bytes / sizeof(int32_t);
  if (given.tokens.offset == 0 || given.tokens.offset % alignof(int32_t) != 0 ||
      bytes % sizeof(int32_t) != 0 ||
      given.tokens.offset > arena_.size_bytes() ||
      bytes > arena_.size_bytes() - given.tokens.offset) {
    return Bad(name, ".tokens at ", given.tokens.offset, ", ", bytes,
               " bytes, are no int32 in the arena of ", arena_.size_bytes(),
               " bytes");
  }
  const auto positions =
      static_cast<uint64_t>(tables_.config.max_position_tokens);
  if (given.prompt_tokens == 0 || given.prompt_tokens > count ||
      count > positions) {
    return Bad(name, " has ", count, " tokens, ", given.prompt_tokens,
               " of them its prompt; the model takes ", positions);
  }
  const int32_t* const tokens = arena_.At<int32_t>(given.tokens.offset, count);
  for (uint64_t i = 0; i < count; ++i) {
    if (InVocabulary(tokens[i])) continue;
    return Bad(name, ".tokens[", i, "] is ", tokens[i], ", the vocabulary has ",
               tables_.config.vocab_size);
  }
  plan_.sequences[s].tokens.assign(tokens, tokens + count);
  return absl::OkStatus();
}

// One row of logits for each sequence.
void SamplePlanner::PlanWorking(uint64_t pass_tokens) {
  WorkingShape shape;
  shape.batch.tokens = static_cast<int64_t>(pass_tokens);
  shape.dtype = tables_.dtype;
  shape.head_token_chunk = static_cast<int64_t>(command_.sequences.size());
  plan_.working_bytes = WorkingBytes(tables_.config, tables_.adapter, shape, 0,
                                     tables_.head_layer());
}

void SamplePlanner::PlanMemory(size_t s) {
  PlannedSequence& sequence = plan_.sequences[s];
  const auto count = static_cast<int64_t>(sequence.tokens.size());
  const bool drawn = count > int64_t{command_.sequences[s].prompt_tokens};
  if ((drawn && IsEndToken(sequence.tokens.back())) ||
      count == tables_.config.max_position_tokens) {
    return;
  }
  // The last token drawn does not go through the model any more.
  sequence.capacity_tokens = std::min(count + int64_t{command_.new_tokens},
                                      tables_.config.max_position_tokens) -
                             1;
  const uint64_t bytes =
      KeyValueLayout(tables_.config, tables_.dtype, sequence.capacity_tokens)
          .total_bytes();
  plan_.cache_bytes = SaturatingAdd(plan_.cache_bytes, bytes);
  plan_.largest_cache_bytes = std::max(plan_.largest_cache_bytes, bytes);
}

}  // namespace

uint64_t SamplePlan::device_bytes(uint64_t weights) const {
  const uint64_t buffers = SaturatingAdd(
      cache_bytes, std::max(largest_cache_bytes, row_bytes + weights));
  return SaturatingAdd(buffers, working_bytes);
}

uint64_t SamplePlan::least_bytes() const {
  return std::min(resident_bytes(), streamed_bytes());
}

absl::StatusOr<SamplePlan> PlanSample(const wire::RunSample& command,
                                      const JobTables& tables,
                                      const wire::Arena& arena,
                                      const DeviceMemory& memory) {
  ASSIGN_OR_RETURN(
      SamplePlan plan,
      SamplePlanner(command, tables, arena, memory.with_libraries).Plan());
  if (plan.least_bytes() > memory.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory: sample ", command.sample, " needs ", plan.least_bytes(),
        " bytes (keys and values ", plan.cache_bytes, ", embedding rows ",
        plan.row_bytes, ", the largest layer's weights ",
        plan.largest_layer_bytes, ", to compute with ", plan.working_bytes,
        "), the limit is ", memory.limit_bytes));
  }
  return plan;
}

}  // namespace roundhouse::worker
