#include "worker/host/job_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"

namespace roundhouse::worker {

static_assert(sizeof(double) <= kScratchHeaderBytes);

namespace {

// How many of the tensors that every trainable unit has, and no other, are
// there.
int TrainingTensors(const wire::UnitLayout& unit) {
  int count = 0;
  for (uint64_t offset :
       {unit.master_offset, unit.exp_avg_offset, unit.exp_avg_sq_offset,
        unit.journal_offset, unit.norm_partials_offset}) {
    if (offset != 0) ++count;
  }
  return count;
}
constexpr int kTrainingTensors = 5;

}  // namespace

JobView::JobView(wire::Arena& arena, const wire::JobLayout* layout)
    : arena_(&arena),
      layout_(layout),
      units_(
          arena.At<wire::UnitLayout>(layout->units_offset, layout->unit_count)),
      parameters_(arena.At<wire::ParameterLayout>(layout->parameters_offset,
                                                  layout->parameter_count)) {}

absl::StatusOr<JobView> JobView::Create(wire::Arena& arena,
                                        uint64_t layout_offset) {
  const auto* layout = arena.At<wire::JobLayout>(layout_offset);
  if (layout->magic != wire::kLayoutMagic ||
      layout->version != wire::kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job layout at offset ", layout_offset, ": version ", layout->version,
        ", this worker reads version ", wire::kWireVersion));
  }
  JobView view(arena, layout);
  RETURN_IF_ERROR(view.Check());
  return view;
}

absl::Status JobView::Check() const {
  if (layout_->scratch_slot_count < 1 ||
      layout_->scratch_slot_bytes < kScratchSlotBytes ||
      layout_->scratch_slot_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", layout_->job, ": ", layout_->scratch_slot_count,
        " scratch slots of ", layout_->scratch_slot_bytes,
        " bytes; at least 1 of ", kScratchSlotBytes, " is needed"));
  }
  for (uint32_t unit = 0; unit < layout_->unit_count; ++unit) {
    RETURN_IF_ERROR(CheckUnit(unit));
  }
  return absl::OkStatus();
}

absl::Status JobView::CheckUnit(uint32_t unit) const {
  const wire::UnitLayout& u = units_[unit];
  const auto bad = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", layout_->job, ": unit ", unit, ": ", what));
  };
  if (u.first_parameter > layout_->parameter_count ||
      u.parameter_count > layout_->parameter_count - u.first_parameter) {
    return bad("parameters outside the table");
  }
  if (u.dtype != layout_->dtype && u.dtype != DType::kF32) {
    return bad("its dtype is neither the job's nor fp32");
  }
  const int tensors = TrainingTensors(u);
  const bool trains = tensors == kTrainingTensors;
  if (u.compute_offset == 0 || (tensors != 0 && !trains) ||
      (u.grad_sum_offset != 0 && !trains)) {
    return bad("it lacks a tensor");
  }
  uint64_t chunks = 0;
  for (uint32_t p = 0; p < u.parameter_count; ++p) {
    const wire::ParameterLayout& parameter = parameters_[u.first_parameter + p];
    if (parameter.first_chunk != chunks) return bad("chunks out of order");
    if (parameter.unit_offset_elements > u.element_count ||
        parameter.element_count >
            u.element_count - parameter.unit_offset_elements) {
      return bad("a parameter outside the unit");
    }
    chunks += wire::ChunkCount(parameter.element_count);
  }
  return chunks == u.chunk_count ? absl::OkStatus()
                                 : bad("chunk_count differs from its chunks");
}

absl::Status JobView::CheckTrainable(uint32_t unit) const {
  if (TrainingTensors(units_[unit]) == kTrainingTensors) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unit ", unit, " of job ", job(),
                   " is frozen: it has no master and no moments"));
}

std::byte* JobView::Scratch(uint32_t slot) const {
  return arena_->At<std::byte>(
      layout_->scratch_offset + slot * layout_->scratch_slot_bytes,
      layout_->scratch_slot_bytes);
}

std::vector<Chunk> JobView::Chunks(uint32_t unit) const {
  const wire::UnitLayout& u = units_[unit];
  std::vector<Chunk> chunks;
  chunks.reserve(u.chunk_count);
  for (uint32_t p = 0; p < u.parameter_count; ++p) {
    const wire::ParameterLayout& parameter = parameters_[u.first_parameter + p];
    for (uint64_t begin = 0; begin < parameter.element_count;
         begin += wire::kChunkElements) {
      chunks.push_back(
          {parameter.unit_offset_elements + begin, begin,
           std::min(wire::kChunkElements, parameter.element_count - begin),
           parameter.weight_decay != 0});
    }
  }
  return chunks;
}

absl::StatusOr<uint64_t> JobView::EmbeddingElement(uint32_t unit) const {
  const wire::UnitLayout& u = units_[unit];
  const uint64_t want =
      static_cast<uint64_t>(model().vocab_size * model().hidden_size);
  for (uint32_t p = 0; p < u.parameter_count; ++p) {
    const wire::ParameterLayout& parameter = parameters_[u.first_parameter + p];
    if (parameter.role == static_cast<uint32_t>(ParamRole::kEmbedding) &&
        parameter.element_count == want && u.dtype == layout_->dtype) {
      return parameter.unit_offset_elements;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unit ", unit, " has no embedding of ", model().vocab_size,
                   " x ", model().hidden_size, " in ", DTypeName(dtype())));
}

std::atomic<uint64_t>* JobView::Journal(uint32_t unit) const {
  return arena_->At<std::atomic<uint64_t>>(units_[unit].journal_offset,
                                           units_[unit].chunk_count);
}

double* JobView::NormPartials(uint32_t unit) const {
  return arena_->At<double>(units_[unit].norm_partials_offset,
                            units_[unit].chunk_count);
}

float* JobView::Fp32(uint32_t unit, uint64_t offset) const {
  return arena_->At<float>(offset, units_[unit].element_count);
}

absl::StatusOr<std::byte*> JobView::Weights(
    uint32_t unit, const wire::BufferRef& weights) const {
  const uint64_t want = units_[unit].element_count * DTypeBytes(dtype(unit));
  if (weights.bytes != want) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights of unit ", unit, " have ", want, " bytes, not ",
                     weights.bytes));
  }
  return arena_->Bytes(weights);
}

}  // namespace roundhouse::worker
