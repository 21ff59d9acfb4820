// The loss scale of a job that computes in fp16, as torch.amp.GradScaler keeps
// it: the loss's gradient is multiplied by the scale, so that small gradients
// do not vanish in fp16, and gradients are divided by it where they are used.
// A step whose gradients overflow is skipped and the scale halved; so many good
// steps in a row double it.
//
//   LossScaler scaler;
//   ... gradients of loss * scaler.scale() ...
//   const bool finite = std::isfinite(norm);
//   scaler.EndStep(finite);  // with not finite gradients: update nothing
//
// Scales are powers of two, so that dividing by one changes no bit.
// Thread-compatible; a value.
#ifndef ROUNDHOUSE_BASE_LOSS_SCALER_H_
#define ROUNDHOUSE_BASE_LOSS_SCALER_H_

#include <cstdint>

namespace roundhouse {

// GradScaler's defaults.
inline constexpr float kInitialLossScale = 65536;
inline constexpr float kLossScaleGrowth = 2;
inline constexpr float kLossScaleBackoff = 0.5;
inline constexpr int64_t kLossScaleGrowthSteps = 2000;
// Ours: GradScaler would go on to halve it for ever.
inline constexpr float kLowestLossScale = 1;

class LossScaler {
 public:
  // What a job goes on from.
  struct State {
    float scale = kInitialLossScale;
    int64_t growth_tracker = 0;  // good steps since the scale changed
    int64_t skipped_steps = 0;   // of the job

    bool operator==(const State&) const = default;
  };

  LossScaler() = default;
  // REQUIRES: IsValid(state).
  explicit LossScaler(const State& state) : state_(state) {}
  // A state that a LossScaler can have: for what is read from a file.
  static bool IsValid(const State& state);

  // The scale of the next step's gradients.
  float scale() const { return state_.scale; }
  const State& state() const { return state_; }
  // The scale is below the lowest: gradients overflow whatever it is.
  bool exhausted() const { return state_.scale < kLowestLossScale; }

  // The step's gradients, which were multiplied by scale(), are known: finite,
  // or the step is skipped.
  void EndStep(bool finite);

 private:
  State state_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_LOSS_SCALER_H_
