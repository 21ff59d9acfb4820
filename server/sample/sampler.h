// Samples for people to look at, one after the other, on the workers that
// train.
//
// Training goes first: what a sample holds of the arena is given back when a
// training job wants the bytes (GiveWay), and its commands are short.
//
// Start and Cancel are thread-safe; all else runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_SAMPLER_H_
#define ROUNDHOUSE_SERVER_SAMPLE_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/share/fair_shares.h"
#include "server/api/sample_engine.h"
#include "server/sample/sample_run.h"
#include "server/sample/sample_source.h"
#include "server/workers/files_line.h"

namespace roundhouse {

// All users' samples; of one user the API admits kMaxStreamsOfKind.
inline constexpr size_t kMaxWaitingSamples = 64;

struct SamplerOptions {
  HelperProgram program;            // prepare_sample.py
  FilesLine* files_line = nullptr;  // outlives the sampler
  // What SampleQuestion::model means; blocks, any thread.
  std::function<absl::StatusOr<SampleSource>(const SampleQuestion&)> open;
  // A device has computed for a sample of the owner for as long.
  std::function<void(const JobOwner&, int64_t ns)> computed =
      [](const JobOwner&, int64_t) {};
  // As SampleRunOptions'.
  std::function<uint64_t()> reserved_bytes = [] { return uint64_t{0}; };
};

class Sampler final : public SampleEngine {
 public:
  // All references outlive the sampler.
  Sampler(EventLoop& loop, HostArena& arena, WorkerPool& pool, BaseCache& bases,
          SamplerOptions options);
  ~Sampler() override;

  // SampleEngine
  void Start(const SampleQuestion& question,
             std::shared_ptr<SampleSink> sink) override;
  void Cancel(const SampleSink* sink) override;

  // Whether a sample holds arena memory, bases that may be dropped excepted.
  bool holds_memory() const { return run_ != nullptr && run_->holds_memory(); }
  // Ends the running sample with RESOURCE_EXHAUSTED; `gone` comes when its
  // bytes are free and before another one begins.  Only the last `gone` counts.
  // REQUIRES: holds_memory().
  void GiveWay(std::function<void()> gone);
  // Every sample ends with UNAVAILABLE, and so do those that come.
  void Stop();

  void OnWorkerUp(WorkerId worker);
  void OnWorkerDown(WorkerId worker);
  void OnDeviceLost();

 private:
  struct Waiting {
    SampleQuestion question;
    SampleSource source;
    std::shared_ptr<SampleSink> sink;
  };

  void Enqueue(Waiting waiting);
  void CancelNow(const SampleSink* sink);
  void StartNext();
  void OnOver(const absl::Status& status);

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  BaseCache& bases_;
  const SamplerOptions options_;
  std::deque<Waiting> queue_;
  std::unique_ptr<SampleRun> run_;
  std::shared_ptr<SampleSink> sink_;     // of run_
  std::shared_ptr<const void> reading_;  // of run_: SampleSource's
  uint64_t next_number_ = kSamplingNumber;
  std::function<void()> gone_;
  bool stopped_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_SAMPLER_H_
