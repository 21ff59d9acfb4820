// One sample from its prompts to its end: the prompts are tokenized, weights
// come into the arena (a base that is there already is used), and a PromptRun
// continues the prompts.
//
//   tokenizing -> loading the base (or waiting for who loads it)
//     -> loading adapters -> drawing -> over
//
// However it ends, the arena's bytes go back only when no worker has work on
// them any more; then `over` comes.  Runs on the event loop's thread;
// workers' comings and goings come through the sampler.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_RUN_H_
#define ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_RUN_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/sample_engine.h"
#include "server/arena/host_arena.h"
#include "server/dataset/text_helper.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/sample/prompt_run.h"
#include "server/sample/sample_source.h"
#include "server/sample/sampling_state.h"
#include "server/weights/base_weights.h"
#include "server/weights/file_table.h"
#include "server/workers/files_line.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

// Numbers of jobs and samples with this bit are a sampler's: none of a training
// job has it.
inline constexpr uint64_t kSamplingNumber = uint64_t{1} << 63;
// Read by one file operation, behind which a job's save may have to wait.
inline constexpr uint64_t kSampleLoadBytes = uint64_t{256} << 20;

struct SampleRunOptions {
  uint64_t number = 0;  // with kSamplingNumber; of kSampleNumbers a multiple
  SampleSource source;
  SampleQuestion question;
  HelperProgram program;            // prepare_sample.py
  FilesLine* files_line = nullptr;  // outlives the run
  std::function<void(int64_t ns)> computed = [](int64_t) {};  // PromptRunCalls'
  // How many bytes must stay free in one piece: what the running job takes when
  // it saves.
  std::function<uint64_t()> reserved_bytes = [] { return uint64_t{0}; };
};

// What a sample runs on; all outlive it.
struct SampleGround {
  EventLoop& loop;
  HostArena& arena;
  WorkerPool& pool;
  BaseCache& bases;
};

// The parts with at most `bytes` of tensors each, or one tensor.
std::deque<FilePart> SplitParts(const std::vector<FilePart>& parts,
                                uint64_t bytes);

class SampleRun {
 public:
  // `sink` is shared with the API's thread.  `over` is called once, with what
  // ended it, when nothing of it is left in the arena; it may not destroy the
  // run.
  SampleRun(const SampleGround& ground, SampleRunOptions options,
            std::shared_ptr<SampleSink> sink,
            std::function<void(absl::Status)> over);
  // REQUIRES: `over` came, or the workers are gone.
  ~SampleRun();

  void Start();
  // The first `why` counts.
  void End(absl::Status why);
  bool holds_memory() const { return state_ != nullptr; }

  void OnWorkerUp(WorkerId worker);
  void OnWorkerDown(WorkerId worker);
  void OnDeviceLost();

 private:
  struct FileWork {
    std::unique_ptr<FileTable> table;
    FilesLine::Ticket ticket{};
  };

  PromptRunOptions PromptOptions() const;
  absl::Status TakeMemory();
  void OnTokenized();
  void OnMemory(const absl::Status& ready);
  void OnPromptsOver(const absl::Status& status);

  // Loading.
  void LoadBase();
  void LookAtBase();
  void OnBaseLoaded(const absl::StatusOr<std::string>& key);
  void LoadAdapters();
  void Load(const std::vector<FilePart>& parts, std::function<void()> loaded);
  void LoadNext();
  void OnFileWork(const absl::Status& status);

  void Configure(WorkerId worker);
  void ReleaseIfQuiet();

  HostArena& arena_;
  WorkerPool& pool_;
  BaseCache& bases_;
  const SampleRunOptions options_;
  const std::shared_ptr<SampleSink> sink_;
  const std::function<void(absl::Status)> over_;

  PromptRun prompts_;
  std::unique_ptr<SamplingState> state_;
  ArenaPages::Waiter memory_wait_ = 0;
  BaseWeights::Ticket base_ticket_ = 0;
  std::deque<FilePart> to_load_;
  std::function<void()> loaded_;  // when all of to_load_ is
  std::optional<FileWork> file_work_;
  std::set<WorkerId> configured_;
  bool ended_ = false;
  std::optional<absl::Status> prompts_over_;  // nothing is with a device
  bool released_ = false;
  Background background_;  // ends with it: nothing follows
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_RUN_H_
