// The arena buffers that slots leave gradient sums in for the host worker:
// fp32, one per trained unit, contribution set, and sum that comes down of the
// unit in a round.
//
// How many sums come down follows from the plan: one for each largest subtree
// of groups that a part of the unit's backward slot covers
// (scheduler/plan/step_plan.h); one in all where the slot is one device wide.
// There are buffers for those of a full round; no other has more.  Runs on the
// event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_CONTRIBUTION_BUFFERS_H_
#define ROUNDHOUSE_SERVER_JOBS_CONTRIBUTION_BUFFERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/layout.h"
#include "scheduler/plan/plan.h"
#include "server/pool/host_arena.h"

namespace roundhouse {

// A unit of the wire (base/model/parameters.h, TrainingUnits) that slots send
// gradients of: trained, and read by a layer of the plan.  An untied embedding
// is none, its gradient is made of stage 0's.
struct ContributedUnit {
  int unit = 0;
  int layer = 0;       // whose backward slot sends it
  uint64_t bytes = 0;  // of one sum
};
std::vector<ContributedUnit> ContributedUnits(const ModelConfig& model,
                                              const AdapterConfig& adapter);

struct ContributionOptions {
  std::vector<ContributedUnit> units;
  // Rounds whose contributions can be there at a time, 1 or 2 (JobShape).
  int sets = 1;
};

// Whether the same buffers serve rounds of both plans, of the same layers.
bool SameContributions(const Plan& a, const Plan& b);

// What ContributionBuffers::Create takes from the arena, in bytes.
uint64_t ContributionBytes(const Plan& plan,
                           const ContributionOptions& options);

class ContributionBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<ContributionBuffers>> Create(
      HostArena& arena, const Plan& plan, const ContributionOptions& options);

  // For sum `index` of a round that uses this set of buffers, in the order of
  // ContributedGroups.  REQUIRES: slots send sums of the unit, of this plan or
  // one that Serve says (checked).
  wire::BufferRef Buffer(int unit, int buffer_set, int index) const;
  // Whether they are what Create would make for `plan`.
  bool Serve(const Plan& plan) const;

  uint64_t host_bytes() const { return range_.bytes(); }

 private:
  struct Sums {
    uint64_t bytes = 0;   // of one
    uint64_t offset = 0;  // of the first, in the range
    int64_t count = 0;    // of one set
  };
  struct Map {
    std::map<int, Sums> units;
    uint64_t total_bytes = 0;
  };
  static Map MakeMap(const Plan& plan, const ContributionOptions& options);
  friend uint64_t ContributionBytes(const Plan& plan,
                                    const ContributionOptions& options);

  ContributionBuffers(const ContributionOptions& options, Map map)
      : options_(options), map_(std::move(map)) {}

  const ContributionOptions options_;
  const Map map_;
  ArenaRange range_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_CONTRIBUTION_BUFFERS_H_
