// What each step's update is made with: AdamW's numbers by the job's schedule,
// and with fp16 the loss scale (base/loss_scaler.h).
//
//   entry.data.update = updates.Begin(step);   // all before it are reduced
//   ... the step's gradients, times loss_scale(), are summed ...
//   const auto norm = updates.EndStep(squares, &entry.data.update);
//
// A step that is skipped counts as a step, but neither Adam's count nor the
// learning rate goes on with it: as in transformers' Trainer.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_UPDATES_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_UPDATES_H_

#include <cstdint>
#include <optional>

#include "base/loss_scaler.h"
#include "base/lr_schedule.h"
#include "server/spec/spec.h"
#include "server/steps/commands.h"

namespace roundhouse {

class StepUpdates {
 public:
  StepUpdates(const JobSpec& spec, int64_t total_steps);

  // A step begins only when the one before it is reduced, which decides its
  // scale.
  bool scales_loss() const { return scales_loss_; }
  // No update of a step begins before all its gradients are known.
  bool wait_for_norm() const { return wait_for_norm_; }
  // The scale of the next step's gradients; 1 unless scales_loss().
  double loss_scale() const { return scales_loss_ ? scaler_.scale() : 1; }
  // Gradients overflow whatever the scale is.
  bool exhausted() const { return scaler_.exhausted(); }

  // Numbers of `step`, from 1.  REQUIRES: with scales_loss(), all before it
  // have ended.
  UpdateNumbers Begin(int64_t step) const;
  // Its gradients, times `loss_scale`, have this sum of squares: answers their
  // norm, unscaled, and says in `update` what to multiply them with.  None: the
  // norm is not finite, and with scales_loss() the step is to be skipped.
  std::optional<double> EndStep(double squares, double loss_scale,
                                UpdateNumbers* update);

  // What a checkpoint keeps; none unless scales_loss().
  std::optional<LossScaler::State> State() const;
  void GoOnFrom(const std::optional<LossScaler::State>& state);

 private:
  const bool scales_loss_;
  const bool wait_for_norm_;
  const double max_grad_norm_;
  const LrSchedule schedule_;
  const UpdateNumbers same_;  // what is the same in every step
  LossScaler scaler_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_UPDATES_H_
