// Brings a job's weights into the arena: the base that adapters are trained on,
// unless it is there, then what trains.
//
// Owned by the job's runner.  Runs on the event loop's thread; the files worker
// reads, and files are looked at beside the loop.
#ifndef ROUNDHOUSE_SERVER_RUN_WEIGHTS_LOADER_H_
#define ROUNDHOUSE_SERVER_RUN_WEIGHTS_LOADER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/directory.h"
#include "server/job/job_memory.h"
#include "server/loop/background.h"
#include "server/weights/base_weights.h"
#include "server/weights/file_operation.h"
#include "server/weights/file_table.h"

namespace roundhouse {

class WeightsLoader {
 public:
  using Done = std::function<void(absl::Status)>;

  // The parts of what trains, and how they are made.
  struct Weights {
    wire::FileOpKind kind = wire::FileOpKind::kLoad;
    std::vector<FilePart> parts;
  };
  struct Calls {
    // The job ends: nothing more is to be loaded.
    std::function<bool()> stopped;
    // The base was loaded already, by another job.
    std::function<void()> base_is_there;
    // Once: the base could not be loaded, or CANCELLED since stopped() is true
    // after it; what trains is not begun then.
    Done base_failed;
    // Once, unless base_failed: what became of what trains.
    Done over;
  };
  // All outlive it; `bases` null: the job has no adapters.
  struct Surroundings {
    JobMemory& memory;
    FileOperation& operation;
    BaseCache* bases = nullptr;
    const ModelDirectory& model;
    Background& background;  // that model outlives its work
  };

  explicit WeightsLoader(const Surroundings& around) : around_(around) {}
  WeightsLoader(const WeightsLoader&) = delete;
  WeightsLoader& operator=(const WeightsLoader&) = delete;

  // Any of the calls may come at once.  REQUIRES: the memory is allocated.
  void Load(Weights weights, Calls calls);
  // Only what trains; `done` may come at once, with RESOURCE_EXHAUSTED when the
  // arena has no room for the tables.
  void LoadTrained(const Weights& weights, Done done);
  // Nobody waits for the base any more.  Before the memory is given back.
  void Stop();

 private:
  void LoadBase(const Weights& next, const Calls& calls);
  void LookAtBase(const absl::Status& loaded, const Weights& next,
                  const Calls& calls);
  void OnBaseLoaded(const absl::Status& status,
                    const absl::StatusOr<std::string>& key);

  const Surroundings around_;
  std::shared_ptr<BaseWeights> base_;  // shared with its cache; null: none
  BaseWeights::Ticket ticket_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_WEIGHTS_LOADER_H_
