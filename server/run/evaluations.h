// Which steps of a job are followed by an evaluation of its validation set,
// which evaluation was the best, and when improvement has ended.
//
// The evaluation before the first step is shown, but is never the best one:
// there is no checkpoint of it.  Nor is one of a checkpoint of another job that
// this one goes on from.
//
// Values and decisions only; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_RUN_EVALUATIONS_H_
#define ROUNDHOUSE_SERVER_RUN_EVALUATIONS_H_

#include <cstdint>
#include <optional>

namespace roundhouse {

// e to the loss in nats per token; 1.797e308, the largest double, where that is
// more, so that it can be written as JSON.
double Perplexity(double loss);

// Before the first step, after the last one, and between them each `every`
// steps (0: none).
class EvaluationTimes {
 public:
  EvaluationTimes(bool wanted, int64_t every)
      : wanted_(wanted), every_(every) {}

  // Whether one comes after `step` steps; `last`: no step follows.
  bool DueAfter(int64_t step, bool last) const;
  // None up to `step` comes any more; -1: none was.
  void DoneUpTo(int64_t step) { done_step_ = step; }
  int64_t done_step() const { return done_step_; }

 private:
  const bool wanted_;
  const int64_t every_;
  int64_t done_step_ = -1;
};

struct Evaluation {
  int64_t step = 0;  // after which it ran; 0: before the first
  double loss = 0;   // nats per target token
  bool operator==(const Evaluation&) const = default;
};

struct EvaluationRules {
  bool has_validation_set = false;
  int64_t eval_steps = 0;  // 0: only before the first step and after the last
  int64_t patience = 0;    // evaluations that improve nothing; 0: any number
};

// What is known of evaluations where a job goes on.
struct EvaluationStart {
  int64_t base_step = 0;        // the first step of this job is after it
  int64_t evaluated_step = -1;  // newest step that was evaluated; -1: none
  std::optional<Evaluation> best;
  int64_t since_best = 0;  // evaluations after the best one
};

class Evaluations {
 public:
  explicit Evaluations(const EvaluationRules& rules)
      : rules_(rules), times_(rules.has_validation_set, rules.eval_steps) {}

  // REQUIRES: nothing was added yet.
  void GoOnFrom(const EvaluationStart& start);

  bool DueAfter(int64_t step, bool last) const {
    return times_.DueAfter(step, last);
  }

  // True when it is the best one so far, lower than every other.
  bool Add(const Evaluation& evaluation);
  // The best one has no checkpoint after all: the best one before it counts.
  // No effect unless it is of `step`.
  void DropBestOf(int64_t step);
  // The best one's checkpoint is lost at the end: `next` is the best of those
  // that there still are.
  void ReplaceBest(const std::optional<Evaluation>& next) { best_ = next; }

  // `patience` evaluations in a row improved nothing.
  bool OutOfPatience() const;

  int64_t evaluated_step() const { return times_.done_step(); }
  const std::optional<Evaluation>& best() const { return best_; }
  int64_t since_best() const { return since_best_; }

 private:
  const EvaluationRules rules_;
  EvaluationTimes times_;
  int64_t base_step_ = 0;
  std::optional<Evaluation> best_, best_before_;
  int64_t since_best_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_EVALUATIONS_H_
