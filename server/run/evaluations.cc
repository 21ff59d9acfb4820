#include "server/run/evaluations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"

namespace roundhouse {

double Perplexity(double loss) {
  return std::min(std::exp(loss), std::numeric_limits<double>::max());
}

bool EvaluationTimes::DueAfter(int64_t step, bool last) const {
  if (!wanted_ || step <= done_step_) return false;
  if (done_step_ < 0 || last) return true;
  return every_ > 0 && step % every_ == 0;
}

void Evaluations::GoOnFrom(const EvaluationStart& start) {
  ROUNDHOUSE_CHECK(evaluated_step() < 0) << evaluated_step();
  base_step_ = start.base_step;
  times_.DoneUpTo(start.evaluated_step);
  best_ = start.best;
  since_best_ = start.since_best;
}

bool Evaluations::Add(const Evaluation& evaluation) {
  ROUNDHOUSE_CHECK(evaluation.step > evaluated_step()) << evaluation.step;
  times_.DoneUpTo(evaluation.step);
  if (evaluation.step <= base_step_) return false;
  if (best_.has_value() && evaluation.loss >= best_->loss) {
    ++since_best_;
    return false;
  }
  best_before_ = best_;
  best_ = evaluation;
  since_best_ = 0;
  return true;
}

void Evaluations::DropBestOf(int64_t step) {
  if (best_.has_value() && best_->step == step) best_ = best_before_;
}

bool Evaluations::OutOfPatience() const {
  return rules_.patience > 0 && since_best_ >= rules_.patience;
}

}  // namespace roundhouse
