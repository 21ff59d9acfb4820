#include "worker/board/sample_cache.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "worker/model/key_value_layout.h"

namespace roundhouse::worker {
namespace {

size_t CommonTokens(const std::vector<int32_t>& a,
                    const std::vector<int32_t>& b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// The first `tokens` of every plane.
absl::Status CopyTokens(const KeyValueLayout& from_layout,
                        const DeviceBuffer& from,
                        const KeyValueLayout& to_layout, DeviceBuffer& to,
                        uint64_t tokens, Stream& stream) {
  for (uint64_t plane = 0; plane < to_layout.plane_count; ++plane) {
    RETURN_IF_ERROR(
        stream.CopyOnDevice(to.data() + plane * to_layout.plane_bytes,
                            from.data() + plane * from_layout.plane_bytes,
                            tokens * to_layout.token_bytes));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> copied, stream.Record());
  return copied->Wait();
}

}  // namespace

absl::Status SampleCache::Sequence::Prepare(const std::vector<int32_t>& wanted,
                                            int64_t capacity,
                                            const JobTables& tables,
                                            Device& device, Stream& stream) {
  tokens.resize(std::min(CommonTokens(tokens, wanted), wanted.size() - 1));
  if (capacity_tokens >= capacity) return absl::OkStatus();
  const KeyValueLayout layout(tables.config, tables.dtype, capacity);
  ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceBuffer> larger,
      device.Allocate(layout.total_bytes(), "a sequence's keys and values"));
  if (!tokens.empty()) {
    RETURN_IF_ERROR(
        CopyTokens(KeyValueLayout(tables.config, tables.dtype, capacity_tokens),
                   *memory, layout, *larger, tokens.size(), stream));
  }
  memory = std::move(larger);
  capacity_tokens = capacity;
  return absl::OkStatus();
}

uint64_t SampleCache::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, sequence] : sequences) {
    if (sequence.memory != nullptr) {
      bytes += DeviceBytes(sequence.memory->bytes());
    }
  }
  return bytes;
}

void SampleCache::Prune(const wire::RunSample& command,
                        const SamplePlan& plan) {
  if (!Holds(command.job, command.sample)) *this = SampleCache();
  std::map<uint32_t, int64_t> planned;
  for (size_t s = 0; s < command.sequences.size(); ++s) {
    planned[command.sequences[s].number] = plan.sequences[s].capacity_tokens;
  }
  std::erase_if(sequences, [&](const auto& entry) {
    const auto found = planned.find(entry.first);
    return found == planned.end() ||
           entry.second.capacity_tokens > found->second;
  });
}

}  // namespace roundhouse::worker
