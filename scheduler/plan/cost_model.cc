#include "scheduler/plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr double kKeep = 0.9;

size_t Index(LayerPass pass) { return static_cast<size_t>(pass); }

absl::Duration WholeNanoseconds(double nanoseconds) {
  return absl::Nanoseconds(std::max<int64_t>(1, std::llround(nanoseconds)));
}

}  // namespace

void CostModel::Average::EndStep() {
  if (sample_count == 0) {
    return;
  }
  const double mean_ns = absl::ToDoubleNanoseconds(sum) / sample_count;
  sum = absl::ZeroDuration();
  sample_count = 0;
  if (!first_dropped) {
    first_dropped = true;
    return;
  }
  weighted_ns = kKeep * weighted_ns + (1 - kKeep) * mean_ns;
  missing_weight *= kKeep;
}

CostModel::CostModel(std::vector<int64_t> layer_parameter_bytes)
    : bytes_(std::move(layer_parameter_bytes)), averages_(bytes_.size()) {
  ROUNDHOUSE_CHECK(!bytes_.empty());
  ROUNDHOUSE_CHECK(bytes_.size() <= kMaxPlanLayers) << bytes_.size();
  for (const int64_t bytes : bytes_) {
    ROUNDHOUSE_CHECK(bytes >= 1 && bytes <= kMaxLayerParameterBytes) << bytes;
  }
}

absl::Status CostModel::CheckSample(int layer, absl::Duration duration) const {
  if (layer < 0 || layer >= layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat("time of layer ", layer,
                                                   ": the job has layers 0..",
                                                   layer_count() - 1));
  }
  if (duration < absl::ZeroDuration() || duration > kMaxSample) {
    return absl::InvalidArgumentError(absl::StrCat(
        "time of layer ", layer, " is ", absl::FormatDuration(duration),
        ": expected 0 to ", absl::FormatDuration(kMaxSample)));
  }
  return absl::OkStatus();
}

void CostModel::Record(int layer, LayerPass pass, absl::Duration duration) {
  Average& average = averages_[layer][Index(pass)];
  average.sum += duration;
  ++average.sample_count;
}

absl::Status CostModel::Observe(int layer, LayerPass pass,
                                absl::Duration duration) {
  RETURN_IF_ERROR(CheckSample(layer, duration));
  Record(layer, pass, duration);
  return absl::OkStatus();
}

void CostModel::EndStep() {
  for (auto& layer : averages_) {
    for (Average& average : layer) {
      average.EndStep();
    }
  }
}

const CostModel::Average& CostModel::average(int layer, LayerPass pass) const {
  ROUNDHOUSE_CHECK(layer >= 0 && layer < layer_count()) << layer;
  return averages_[layer][Index(pass)];
}

bool CostModel::Measured(LayerPass pass) const {
  for (int layer = 0; layer < layer_count(); ++layer) {
    if (!average(layer, pass).measured()) {
      return false;
    }
  }
  return true;
}

bool CostModel::forward_measured() const {
  return Measured(LayerPass::kForward);
}

bool CostModel::training_measured() const {
  return Measured(LayerPass::kRecompute) && Measured(LayerPass::kBackward);
}

double CostModel::ColdNanoseconds(int layer, LayerPass pass) const {
  const double bytes = static_cast<double>(bytes_[layer]);
  return pass == LayerPass::kBackward ? 2 * bytes : bytes;
}

double CostModel::Nanoseconds(int layer, LayerPass pass, bool measured) const {
  const Average& measurement = average(layer, pass);
  return measured ? measurement.nanoseconds() : ColdNanoseconds(layer, pass);
}

absl::Duration CostModel::Forward(int layer) const {
  return WholeNanoseconds(
      Nanoseconds(layer, LayerPass::kForward, forward_measured()));
}

absl::Duration CostModel::Recompute(int layer) const {
  return WholeNanoseconds(
      Nanoseconds(layer, LayerPass::kRecompute, training_measured()));
}

absl::Duration CostModel::Backward(int layer) const {
  const bool measured = training_measured();
  return WholeNanoseconds(Nanoseconds(layer, LayerPass::kRecompute, measured) +
                          Nanoseconds(layer, LayerPass::kBackward, measured));
}

}  // namespace roundhouse
