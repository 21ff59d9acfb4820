#include "server/run/best_model.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/job/storage_reason.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {

void BestModel::Load() {
  const std::optional<Evaluation>& best = around_.evaluations.best();
  if (options_.spec.spec().load_best_model_at_end && best.has_value() &&
      best->step != around_.marks.completed) {
    Read(best->step);
  } else {
    calls_.over(absl::OkStatus());
  }
}

void BestModel::Read(int64_t step) {
  // Shared: written off the loop, read on it.
  auto parts = std::make_shared<std::vector<FilePart>>();
  around_.background.Run(
      [this, path = CheckpointPath(options_.directory, step), step,
       parts]() -> absl::Status {
        RETURN_IF_ERROR(VerifyCheckpoint(*options_.files, path).status());
        ASSIGN_OR_RETURN(*parts, calls_.parts(path, step));
        return absl::OkStatus();
      },
      [this, step, parts](const absl::Status& status) {
        if (calls_.ending()) return;
        if (MayPass(status)) {
          calls_.over(status);
        } else if (!status.ok()) {
          Lose(step, status);
        } else {
          step_in_arena_ = step;
          around_.loader.LoadTrained({wire::FileOpKind::kLoad, *parts},
                                     [this](const absl::Status& loaded) {
                                       if (!calls_.ending()) {
                                         calls_.over(loaded);
                                       }
                                     });
        }
      });
}

void BestModel::Lose(int64_t step, const absl::Status& why) {
  lost_ = absl::StrCat("load_best_model_at_end: the best model, of step ", step,
                       ", is lost: ", std::string(why.message()));
  // Shared: written off the loop, read on it.
  auto checkpoints = std::make_shared<std::vector<int64_t>>();
  around_.background.Run(
      [directory = options_.directory, checkpoints] {
        *checkpoints = ListCheckpointSteps(directory);
        return absl::OkStatus();
      },
      [this, step, checkpoints](const absl::Status&) {
        if (!calls_.ending()) Replace(step, *checkpoints);
      });
}

void BestModel::Replace(int64_t step, const std::vector<int64_t>& checkpoints) {
  const std::optional<Evaluation> next = NextBest(step, checkpoints);
  around_.events.OnCheckpointCorrupt(lost_);
  around_.events.OnWarning(lost_);
  around_.evaluations.ReplaceBest(next);
  around_.background.Run(
      [path = CheckpointPath(options_.directory, step)] {
        return QuarantineCheckpoint(path);
      },
      [this](const absl::Status& moved) {
        if (!moved.ok()) around_.events.OnNote(std::string(moved.message()));
        if (!calls_.ending()) Load();
      });
}

std::optional<Evaluation> BestModel::NextBest(
    int64_t lost_step, std::vector<int64_t> steps) const {
  std::erase(steps, lost_step);
  steps.push_back(around_.marks.completed);  // in the arena
  std::optional<Evaluation> next;
  for (const Evaluation& evaluation : around_.history.FoundEvaluations()) {
    if (evaluation.step <= around_.marks.base ||
        std::count(steps.begin(), steps.end(), evaluation.step) == 0) {
      continue;
    }
    if (!next.has_value() || evaluation.loss < next->loss) next = evaluation;
  }
  return next;
}

}  // namespace roundhouse
