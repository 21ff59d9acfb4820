// A job's losses over its steps in at most kMaxLossPoints points: each is the
// mean of as many steps as the length of the run makes necessary.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_LOSS_CURVE_H_
#define ROUNDHOUSE_SERVER_OBSERVE_LOSS_CURVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace roundhouse {

inline constexpr size_t kMaxLossPoints = 200;

struct LossPoint {
  int64_t step = 0;  // the last of them
  double loss = 0;   // their mean
};

class LossCurve {
 public:
  // Steps rise.
  void Add(int64_t step, double loss);
  const std::vector<LossPoint>& points() const { return points_; }

 private:
  void Halve();

  int64_t steps_per_point_ = 1;
  int64_t in_last_ = 0;  // steps of the last point; fewer than the others'
  std::vector<LossPoint> points_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_LOSS_CURVE_H_
