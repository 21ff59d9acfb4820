// What the host does between a layer's gradients and its next weights, over the
// rounds of consecutive steps: reductions, updates, and what may not move
// before them.
//
//   reduction   of (round, layer) once all its contributions are down; not
//               before the update that reads the sum of the step before
//   update      of (step, layer) once its last round is reduced; with clipping
//               once every layer's is
//   down        contributions of a round once the round before is reduced, in
//               one pass updated
//   up          weights of a step once the step before has updated them
//   (kStale:
//               the one before that)
//   one pass    of (step, layer) once whoever directs says so: reduction and
//               update as one operation.  Its contributions are read, then
//               kOnePassBytesPerParameter move; no sum is written or read.  The
//               two are shown one after the other, and no other host work runs
//               beside them.  The embedding's sum is kept, in two passes
//   rows        inputs of layer 0: once the round before the last has retired
//               (activations have two sets of buffers), and the rows' gradients
//               of the step before (kStale: of the one before that) are down
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_HOST_WORK_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_HOST_WORK_H_

#include <cstdint>
#include <vector>

#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// Bytes of gradient contributions on the links: as wide as the weights (`fast`)
// or fp32 (`bitwise`).
enum class Contributions { kModelDtype, kFp32 };

// When a layer's weights are updated.
enum class Updates {
  kNone,       // never: an isolated step
  kAsReduced,  // as soon as its last reduction is done
  kClipped,    // after the last reduction of all, layer 0 first
  kStale,      // as kAsReduced; a step reads what the update before the last
               // one wrote, so that updates run under the next step
  // As kAsReduced and kStale, in one pass with the reduction, once every part
  // that reads the layer's weights has committed.  REQUIRES: steps of one
  // round, under a feed that directs (JobShape::one_pass).
  kOnePass,
  kOnePassStale,
};
inline bool IsStale(Updates updates) {
  return updates == Updates::kStale || updates == Updates::kOnePassStale;
}
inline bool IsOnePass(Updates updates) {
  return updates == Updates::kOnePass || updates == Updates::kOnePassStale;
}

// Host memory traffic of AdamW: gradient 4, master and moments 12 read and 12
// written, compute copy 2.  In one pass (worker/host/update.cc) the sum of what
// was contributed stays in the cores' caches: it is not read.
inline constexpr int64_t kUpdateBytesPerParameter = 30;
inline constexpr int64_t kOnePassBytesPerParameter =
    kUpdateBytesPerParameter - 4;
// Parameters per nanosecond that host threads update at most.
inline constexpr double kMostUpdateRate = 8;
// The same rate in bytes.
double MostUpdateBytesRate(Updates updates);

// In a layer's place, where a Dispatcher directs (dispatcher_feed.h): the
// embedding, and of a tied one the head's share of its gradient.
inline constexpr int kEmbedding = -1;
inline constexpr int kHeadShare = -2;

// Bytes of one contribution to a layer's gradient, and what reducing
// `count` of them moves: all read, 4 bytes per parameter written, but in one
// pass.  Of a round that is not the step's first, AddToSumBytes more: the sum
// is read, too.
int64_t ContributionBytes(const ModelCosts& costs, int layer,
                          Contributions contributions);
int64_t ReduceBytes(const ModelCosts& costs, int layer,
                    Contributions contributions, Updates updates,
                    int64_t count);
int64_t AddToSumBytes(const ModelCosts& costs, int layer);
int64_t UpdateBytes(const ModelCosts& costs, int layer, Updates updates);
// Adding the gradients of a round's rows to a sum that is there already: no
// more rows of it are touched than there are tokens.
int64_t AddRowsBytes(const ModelCosts& costs, int64_t micro_batches);

// The input gradient of layer 0 goes down where the embedding trains: where the
// head does.
bool TrainsEmbedding(const ModelCosts& costs);

class HostWork {
 public:
  struct Rounds {
    int steps = 1;
    int per_step = 1;
    int micro_batches = 1;  // of a round
    Updates updates = Updates::kNone;
    // Weights go up layer by layer; else once all layers are updated.
    bool per_layer = true;
    // Somebody else decides when reductions and updates start, by Start, and
    // when rows are there.
    bool directed = false;

    int count() const { return steps * per_step; }
  };

  // kReduce or kOptimizer.
  struct Job {
    WorkKind kind = WorkKind::kReduce;
    int round = 0;  // over all steps; of an update the step's last
    int layer = 0;
    int64_t bytes = 0;
  };

  // `parts`: of one round; every round has the same.  `costs` outlives it.
  // REQUIRES: directed for updates in one pass.
  HostWork(const ModelCosts& costs, const std::vector<Part>& parts,
           const Rounds& rounds, Contributions contributions);

  // Events.  A part's contributions to a layer are down.
  void ContributionsDown(int round, int layer);
  void RowsGradientDown(int round);
  void Done(const Job& job);

  // kReduce or kOptimizer (of the step whose last round this is; in one pass
  // its reduction goes before).  REQUIRES: directed.
  void Start(WorkKind kind, int round, int layer);

  // The jobs that can start since the last call.
  std::vector<Job> TakeJobs();

  bool ContributionsMayGoDown(int round, int layer) const;
  bool WeightsMayGoUp(int round, int layer) const;
  bool RowsAreThere(int round) const;

  // Whether the layer is reduced as it is updated.
  bool InOnePass(int layer) const {
    return layer >= 0 && IsOnePass(rounds_.updates);
  }

 private:
  struct Layer {
    int contributors_left = 0;
    bool reduced = false;
    bool updated = false;  // of the step, kept in its last round
  };
  struct Round {
    std::vector<Layer> layers;
    int layers_left = 0;   // to be reduced
    int updates_left = 0;  // of the step, kept in its last round
    int64_t rows_left = 0;
  };

  int LastRound(int step) const { return (step + 1) * rounds_.per_step - 1; }
  // The step whose updates `step` reads; negative: none.
  int SourceStep(int step) const;
  void Reduce(int round, int layer);
  void Reduced(int round, int layer);
  void Update(int step, int layer);
  void Updated(int step, int layer);

  const ModelCosts& costs_;
  const Rounds rounds_;
  const Contributions contributions_;
  std::vector<int64_t> contribution_count_;  // per layer and round
  std::vector<Round> state_;
  std::vector<Job> jobs_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_HOST_WORK_H_
