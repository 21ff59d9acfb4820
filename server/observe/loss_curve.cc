#include "server/observe/loss_curve.h"

namespace roundhouse {

void LossCurve::Add(int64_t step, double loss) {
  if (in_last_ == 0 || in_last_ == steps_per_point_) {
    if (points_.size() == kMaxLossPoints) Halve();
    points_.push_back({});
    in_last_ = 0;
  }
  LossPoint& last = points_.back();
  ++in_last_;
  last.step = step;
  last.loss += (loss - last.loss) / static_cast<double>(in_last_);
}

void LossCurve::Halve() {
  for (size_t i = 0; i < kMaxLossPoints / 2; ++i) {
    const LossPoint& left = points_[2 * i];
    const LossPoint& right = points_[2 * i + 1];
    points_[i] = {right.step, left.loss / 2 + right.loss / 2};
  }
  points_.resize(kMaxLossPoints / 2);
  steps_per_point_ *= 2;
}

}  // namespace roundhouse
