// A job's eval_prompts, completed between two steps by its weights as they
// stand: greedily, on the job's own workers, by a PromptRun.
//
//   idle --Begin--> tokenizing -> drawing <-> decoding --over--> idle
//
// Every completion is kept as a line of samples.jsonl: a JSON object with step
// (after which the weights were read), index (in eval_prompts), prompt,
// completion, tokens (ids, with the one that ended it).  Lines are in the order
// of steps, then of prompts.
//
// Runs on the event loop's thread; the pool's events come through the runner.
#ifndef ROUNDHOUSE_SERVER_RUN_EVALUATION_SAMPLES_H_
#define ROUNDHOUSE_SERVER_RUN_EVALUATION_SAMPLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/wire/commands.h"
#include "server/arena/host_arena.h"
#include "server/dataset/text_helper.h"
#include "server/loop/event_loop.h"
#include "server/run/evaluations.h"
#include "server/sample/prompt_run.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

struct EvaluationSample {
  int64_t step = 0;
  int prompt = 0;  // index in eval_prompts
  std::string completion;
  std::vector<int32_t> tokens;
};

struct EvaluationSamplesOptions {
  uint64_t job = 0;
  ModelConfig model;
  std::vector<std::string> prompts;  // empty: nothing is ever due
  int64_t eval_steps = 0;
  TextHelperOptions text;
  std::function<void(int64_t ns)> computed = [](int64_t) {};  // PromptRunCalls'
};

// How PromptRun is to read eval_prompts, also before there is a job that runs.
PromptRunOptions EvalPromptOptions(const EvaluationSamplesOptions& options);

class EvaluationSamples {
 public:
  struct Found {
    std::vector<EvaluationSample> samples;
    std::vector<std::string> lines;  // of samples.jsonl, one a sample
    // Prompts that have special tokens of the tokenizer in their message; told
    // once.
    std::vector<int> control_tokens;
  };
  using Over = std::function<void(absl::StatusOr<Found>)>;

  EvaluationSamples(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                    EvaluationSamplesOptions options);
  // REQUIRES: not running, or the workers are gone.
  ~EvaluationSamples();

  // Takes up the lines of a checkpoint of `step`.  REQUIRES: before the first
  // Begin.
  void GoOnFrom(const std::string& lines, int64_t step);
  // What was due before the first step was drawn, or could not be, in an
  // earlier life of the job.
  void FirstAreOver() {
    if (times_.done_step() < 0) times_.DoneUpTo(0);
  }
  // Lines of samples.jsonl, without their ends.
  const std::vector<std::string>& lines() const { return lines_; }

  bool DueAfter(int64_t step, bool last) const {
    return times_.DueAfter(step, last);
  }
  // `units`: RunSample::units; nobody writes them before `over`, which comes
  // once and never from within Begin or Stop, with all of the completions or
  // what was in the way.  Whichever: none are due after `step` any more.
  // REQUIRES: !running().
  void Begin(int64_t step, std::vector<wire::SlotUnit> units, Over over);
  bool running() const { return over_ != nullptr; }
  // Hurries `over`, with CANCELLED unless it is on its way.
  void Stop();

  void OnWorkerUp(WorkerId worker);
  void OnDeviceLost();

 private:
  void OnPiece(SamplePiece piece);
  void OnRunOver(const absl::Status& status);
  void Finish(const absl::Status& status);
  std::string Line(const EvaluationSample& sample) const;

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  const EvaluationSamplesOptions options_;
  EvaluationTimes times_;
  std::vector<std::string> lines_;
  std::unique_ptr<PromptRun> run_;
  std::vector<EvaluationSample> samples_;  // of run_, as far as they are
  Over over_;
  uint64_t next_sample_ = 0;
  bool told_control_tokens_ = false;
  EventLoop::TimerId finish_timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_EVALUATION_SAMPLES_H_
