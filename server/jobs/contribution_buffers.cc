#include "server/jobs/contribution_buffers.h"

#include <algorithm>
#include <utility>

#include "base/dtype.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {
namespace {

// Of one unit in a full round, per layer.
std::vector<int64_t> MostSums(const Plan& plan) {
  std::vector<int64_t> sums(plan.backward.front().last + 1);
  int slot = static_cast<int>(plan.forward.size());
  for (const LayerRange& stage : plan.backward) {
    std::fill(sums.begin() + stage.first, sums.begin() + stage.last + 1,
              MostContributions(plan, slot++));
  }
  return sums;
}

}  // namespace

std::vector<ContributedUnit> ContributedUnits(const ModelConfig& model,
                                              const AdapterConfig& adapter) {
  const auto specs = TrainingUnits(model, adapter);
  std::vector<ContributedUnit> units;
  for (int64_t layer = 0; layer <= model.layer_count; ++layer) {
    for (int unit : TrainingUnitsOfLayer(model, adapter, layer)) {
      if (!IsTrainable(model, adapter, unit)) continue;
      units.push_back({unit, static_cast<int>(layer),
                       static_cast<uint64_t>(specs[unit].element_count) *
                           DTypeBytes(DType::kF32)});
    }
  }
  return units;
}

ContributionBuffers::Map ContributionBuffers::MakeMap(
    const Plan& plan, const ContributionOptions& options) {
  Map map;
  const std::vector<int64_t> most = MostSums(plan);
  for (const ContributedUnit& unit : options.units) {
    ROUNDHOUSE_CHECK(unit.bytes % 64 == 0) << "unit " << unit.unit;
    const int64_t count = most.at(unit.layer);
    map.units[unit.unit] = {unit.bytes, map.total_bytes, count};
    map.total_bytes += unit.bytes * static_cast<uint64_t>(count) *
                       static_cast<uint64_t>(options.sets);
  }
  return map;
}

bool SameContributions(const Plan& a, const Plan& b) {
  return MostSums(a) == MostSums(b);
}

uint64_t ContributionBytes(const Plan& plan,
                           const ContributionOptions& options) {
  return ContributionBuffers::MakeMap(plan, options).total_bytes;
}

absl::StatusOr<std::unique_ptr<ContributionBuffers>>
ContributionBuffers::Create(HostArena& arena, const Plan& plan,
                            const ContributionOptions& options) {
  Map map = MakeMap(plan, options);
  const uint64_t bytes = map.total_bytes;
  auto buffers = std::unique_ptr<ContributionBuffers>(
      new ContributionBuffers(options, std::move(map)));
  if (bytes > 0) {
    ASSIGN_OR_RETURN(buffers->range_, ArenaRange::Allocate(arena, bytes));
  }
  return buffers;
}

wire::BufferRef ContributionBuffers::Buffer(int unit, int buffer_set,
                                            int index) const {
  const auto found = map_.units.find(unit);
  ROUNDHOUSE_CHECK(found != map_.units.end())
      << "no slot sends sums of unit " << unit;
  const Sums& sums = found->second;
  ROUNDHOUSE_CHECK(0 <= index && index < sums.count)
      << "sum " << index << " of unit " << unit << ", which has " << sums.count;
  const int64_t set = buffer_set % options_.sets;
  const auto place = static_cast<uint64_t>(set * sums.count + index);
  return {range_.offset() + sums.offset + place * sums.bytes, sums.bytes};
}

bool ContributionBuffers::Serve(const Plan& plan) const {
  const std::vector<int64_t> most = MostSums(plan);
  return std::all_of(options_.units.begin(), options_.units.end(),
                     [&](const ContributedUnit& unit) {
                       return most.at(unit.layer) ==
                              map_.units.at(unit.unit).count;
                     });
}

}  // namespace roundhouse
