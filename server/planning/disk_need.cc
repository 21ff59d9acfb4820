#include "server/planning/disk_need.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/dtype.h"
#include "base/model/parameters.h"
#include "server/planning/job_needs.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// Masters and two moments.
constexpr uint64_t kOptimizerTensors = 3;
constexpr uint64_t kMostBytes = std::numeric_limits<uint64_t>::max();

uint64_t Elements(const UnitSpec& unit) {
  uint64_t elements = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    elements += static_cast<uint64_t>(parameter.element_count);
  }
  return elements;
}

// Checkpoints that save_steps and the last step ask for.
int64_t Saves(const JobSpec& spec, int64_t start_step) {
  if (spec.save_steps == 0 || spec.max_steps == 0) return 1;
  const int64_t before_last = (spec.max_steps - 1) / spec.save_steps;
  return before_last - start_step / spec.save_steps + 1;
}

}  // namespace

uint64_t DiskNeed::total_bytes() const {
  const auto count = static_cast<uint64_t>(checkpoint_count);
  if (count > 0 && checkpoint_bytes > (kMostBytes - export_bytes) / count) {
    return kMostBytes;
  }
  return checkpoint_bytes * count + export_bytes;
}

int64_t CheckpointsAtOnce(const JobSpec& spec, int64_t start_step) {
  const int64_t best = spec.load_best_model_at_end ? 1 : 0;
  const int64_t all = Saves(spec, start_step) + best;
  if (spec.save_total_limit == 0) return all;
  const int64_t kept = spec.save_total_limit + best + 1;
  const bool steps_known = spec.max_steps > 0 || spec.save_steps == 0;
  return steps_known ? std::min(all, kept) : kept;
}

DiskNeed DiskNeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                    int64_t start_step) {
  const AdapterConfig adapter = spec.adapter();
  const DType dtype = spec.dtype();
  const std::vector<UnitSpec> units = TrainingUnits(model, adapter);
  DiskNeed need;
  uint64_t optimizer_bytes = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto unit = static_cast<int64_t>(i);
    if (!IsTrainable(model, adapter, unit)) continue;
    const uint64_t elements = Elements(units[i]);
    need.export_bytes += elements * DTypeBytes(UnitDType(model, dtype, unit));
    optimizer_bytes += kOptimizerTensors * elements * DTypeBytes(DType::kF32);
  }
  // With an asynchronous optimizer the weights before the last update, too.
  const uint64_t copies =
      spec.spec().optimizer_mode == OptimizerMode::kAsync ? 2 : 1;
  need.checkpoint_bytes = copies * need.export_bytes + optimizer_bytes;
  need.checkpoint_count = CheckpointsAtOnce(spec.spec(), start_step);
  return need;
}

absl::Status CheckDisk(const DiskNeed& need, uint64_t free_bytes,
                       const std::string& directory) {
  if (need.total_bytes() <= free_bytes) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kResourceExhausted, FieldReason::kStorageFull,
      "model_name_or_path",
      absl::StrCat("the job needs ", ByteText(need.total_bytes()), " of disk (",
                   need.checkpoint_count, " checkpoints at once of ",
                   ByteText(need.checkpoint_bytes),
                   " each, see save_steps and save_total_limit, and ",
                   ByteText(need.export_bytes), " of its result), ",
                   ByteText(free_bytes), " are free in ", directory));
}

}  // namespace roundhouse
