// The arena buffers that slots leave gradient sums in for the host worker, in
// the job's dtype for them (ContributionDType): blocks that decoder layers
// share, each room for one sum of all of a layer's trained units, and blocks
// for the head's (scheduler/plan/contribution_blocks.h).  The Dispatcher says
// which block a sum goes to.
//
// How many sums come down of a unit follows from the plan: one for each largest
// subtree of groups that a part of its backward slot covers
// (scheduler/plan/step_plan.h).  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_PLANNING_CONTRIBUTION_BUFFERS_H_
#define ROUNDHOUSE_SERVER_PLANNING_CONTRIBUTION_BUFFERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/layout.h"
#include "scheduler/plan/contribution_blocks.h"
#include "scheduler/plan/plan.h"
#include "server/arena/host_arena.h"

namespace roundhouse {

// A unit of the wire (base/model/parameters.h, TrainingUnits) that slots send
// gradients of: trained, and read by a layer of the plan.  An untied embedding
// is none, its gradient is made of stage 0's.
struct ContributedUnit {
  int unit = 0;
  int layer = 0;  // whose backward slot sends it
  bool head = false;
  uint64_t elements = 0;  // of one sum
};
std::vector<ContributedUnit> ContributedUnits(const ModelConfig& model,
                                              const AdapterConfig& adapter);

struct ContributionOptions {
  DType dtype = DType::kF32;
  std::vector<ContributedUnit> units;
  // Rounds of a full step; 2 where updates hold the sums of a step of one,
  // under which the next step's slots run.
  int64_t rounds = 1;
  int slots_ahead = 1;  // parts of slots that are with devices at a time
};

// For a plan of the job.
ContributionBlocks BlocksOf(const Plan& plan,
                            const ContributionOptions& options);

// Whether a job that has these can run the plan: no slot needs more.
bool Suffice(const ContributionBlocks& blocks, const Plan& plan,
             const ContributionOptions& options);

// What ContributionBuffers::Create takes from the arena, in bytes.
uint64_t ContributionBytes(const Plan& plan,
                           const ContributionOptions& options);

class ContributionBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<ContributionBuffers>> Create(
      HostArena& arena, const Plan& plan, const ContributionOptions& options);

  // A unit's part of a block: of the head's where the head's slot sends it.
  // REQUIRES: slots send sums of the unit, and there is such a block (checked).
  wire::BufferRef Buffer(int unit, int block) const;

  const ContributionBlocks& blocks() const { return blocks_; }
  DType dtype() const { return dtype_; }
  uint64_t host_bytes() const { return range_.bytes(); }

 private:
  struct UnitPlace {
    bool head = false;
    uint64_t offset = 0;  // in its block
    uint64_t bytes = 0;
  };
  struct Map {
    std::map<int, UnitPlace> units;
    uint64_t layer_block_bytes = 0;
    uint64_t head_block_bytes = 0;
    uint64_t BytesOf(const ContributionBlocks& blocks) const;
  };
  static Map MakeMap(const ContributionOptions& options);
  friend uint64_t ContributionBytes(const Plan& plan,
                                    const ContributionOptions& options);

  ContributionBuffers(const ContributionBlocks& blocks, DType dtype, Map map)
      : blocks_(blocks), dtype_(dtype), map_(std::move(map)) {}

  const ContributionBlocks blocks_;
  const DType dtype_;
  const Map map_;
  ArenaRange range_;  // blocks of decoder layers, then of the head
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_CONTRIBUTION_BUFFERS_H_
