#include "server/planning/contribution_buffers.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

std::vector<ContributedUnit> ContributedUnits(const ModelConfig& model,
                                              const AdapterConfig& adapter) {
  const auto specs = TrainingUnits(model, adapter);
  std::vector<ContributedUnit> units;
  for (int64_t layer = 0; layer <= model.layer_count; ++layer) {
    for (int unit : TrainingUnitsOfLayer(model, adapter, layer)) {
      if (!IsTrainable(model, adapter, unit)) continue;
      units.push_back({unit, static_cast<int>(layer),
                       layer == model.layer_count,
                       static_cast<uint64_t>(specs[unit].element_count)});
    }
  }
  return units;
}

ContributionBlocks BlocksOf(const Plan& plan,
                            const ContributionOptions& options) {
  return BlocksOf(plan, options.rounds, options.slots_ahead);
}

bool Suffice(const ContributionBlocks& blocks, const Plan& plan,
             const ContributionOptions& options) {
  const ContributionBlocks least = BlocksOf(plan, options.rounds, 1);
  return blocks.layers >= least.layers && blocks.head >= least.head;
}

uint64_t ContributionBuffers::Map::BytesOf(
    const ContributionBlocks& blocks) const {
  return static_cast<uint64_t>(blocks.layers) * layer_block_bytes +
         static_cast<uint64_t>(blocks.head) * head_block_bytes;
}

ContributionBuffers::Map ContributionBuffers::MakeMap(
    const ContributionOptions& options) {
  Map map;
  std::map<int, uint64_t> layer_bytes;
  for (const ContributedUnit& unit : options.units) {
    const uint64_t one = unit.elements * DTypeBytes(options.dtype);
    ROUNDHOUSE_CHECK(one % 64 == 0) << "unit " << unit.unit;
    uint64_t& bytes = layer_bytes[unit.layer];
    map.units[unit.unit] = {unit.head, bytes, one};
    bytes += one;
    uint64_t& block = unit.head ? map.head_block_bytes : map.layer_block_bytes;
    block = std::max(block, bytes);
  }
  return map;
}

uint64_t ContributionBytes(const Plan& plan,
                           const ContributionOptions& options) {
  return ContributionBuffers::MakeMap(options).BytesOf(BlocksOf(plan, options));
}

absl::StatusOr<std::unique_ptr<ContributionBuffers>>
ContributionBuffers::Create(HostArena& arena, const Plan& plan,
                            const ContributionOptions& options) {
  auto buffers = std::unique_ptr<ContributionBuffers>(new ContributionBuffers(
      BlocksOf(plan, options), options.dtype, MakeMap(options)));
  const uint64_t bytes = buffers->map_.BytesOf(buffers->blocks_);
  if (bytes > 0) {
    ASSIGN_OR_RETURN(buffers->range_, ArenaRange::Allocate(arena, bytes));
  }
  return buffers;
}

wire::BufferRef ContributionBuffers::Buffer(int unit, int block) const {
  const auto found = map_.units.find(unit);
  ROUNDHOUSE_CHECK(found != map_.units.end())
      << "no slot sends sums of unit " << unit;
  const UnitPlace& place = found->second;
  const int64_t count = place.head ? blocks_.head : blocks_.layers;
  ROUNDHOUSE_CHECK(0 <= block && block < count)
      << "block " << block << " of " << count << ", for unit " << unit;
  const uint64_t first = place.head ? static_cast<uint64_t>(blocks_.layers) *
                                          map_.layer_block_bytes
                                    : 0;
  const uint64_t block_bytes =
      place.head ? map_.head_block_bytes : map_.layer_block_bytes;
  return {range_.offset() + first + block * block_bytes + place.offset,
          place.bytes};
}

}  // namespace roundhouse
