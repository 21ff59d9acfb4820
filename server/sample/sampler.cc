#include "server/sample/sampler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status Stopping() {
  return absl::UnavailableError("the server is stopping");
}

absl::Status Cancelled() {
  return absl::CancelledError("the call was cancelled");
}

}  // namespace

Sampler::Sampler(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                 BaseCache& bases, SamplerOptions options)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      bases_(bases),
      options_(std::move(options)) {}

Sampler::~Sampler() = default;

void Sampler::Start(const SampleQuestion& question,
                    std::shared_ptr<SampleSink> sink) {
  if (pool_.device_count() == 0) {
    return sink->OnEnd(FieldError(
        absl::StatusCode::kFailedPrecondition, FieldReason::kNoHealthyDevice,
        "", "this server runs with --devices=none: nothing can be sampled"));
  }
  auto source = options_.open(question);
  if (!source.ok()) return sink->OnEnd(source.status());
  sink->OnSource(source->path);
  Waiting waiting{question, *std::move(source), sink};
  const absl::Status posted =
      loop_.Post([this, waiting = std::move(waiting)] { Enqueue(waiting); });
  if (!posted.ok()) sink->OnEnd(posted);
}

void Sampler::Enqueue(Waiting waiting) {
  if (stopped_) return waiting.sink->OnEnd(Stopping());
  if (queue_.size() >= kMaxWaitingSamples) {
    return waiting.sink->OnEnd(FieldError(
        absl::StatusCode::kResourceExhausted, FieldReason::kQuota, "",
        absl::StrCat(kMaxWaitingSamples,
                     " samples wait already; try again later")));
  }
  queue_.push_back(std::move(waiting));
  StartNext();
}

void Sampler::StartNext() {
  while (run_ == nullptr && !queue_.empty()) {
    Waiting next = std::move(queue_.front());
    queue_.pop_front();
    if (next.sink->cancelled()) {
      next.sink->OnEnd(Cancelled());
      continue;
    }
    sink_ = next.sink;
    reading_ = std::move(next.source.reading);
    const JobOwner owner = {next.source.project, next.question.caller.owner()};
    run_ = std::make_unique<SampleRun>(
        SampleGround{loop_, arena_, pool_, bases_},
        SampleRunOptions{
            .number = next_number_,
            .source = std::move(next.source),
            .question = std::move(next.question),
            .program = options_.program,
            .files_line = options_.files_line,
            .computed = [this,
                         owner](int64_t ns) { options_.computed(owner, ns); },
            .reserved_bytes = options_.reserved_bytes},
        next.sink, [this](const absl::Status& status) { OnOver(status); });
    next_number_ += kSampleNumbers;
    run_->Start();
  }
}

void Sampler::OnOver(const absl::Status& status) {
  RH_LOG(kInfo) << "a sample is over: " << status;
  reading_.reset();  // before anybody hears that it is over
  // A stopped daemon said so already.
  if (sink_ != nullptr) std::exchange(sink_, nullptr)->OnEnd(status);
  // The run is still on the stack.
  std::shared_ptr<SampleRun> last = std::move(run_);
  loop_.After(absl::ZeroDuration(), [this, last]() mutable {
    last.reset();
    if (gone_ != nullptr) std::exchange(gone_, nullptr)();
    StartNext();
  });
}

void Sampler::GiveWay(std::function<void()> gone) {
  ROUNDHOUSE_CHECK(holds_memory());
  gone_ = std::move(gone);
  run_->End(FieldError(
      absl::StatusCode::kResourceExhausted, FieldReason::kHostMemory, "model",
      "a training job needs the host memory; try again later"));
}

void Sampler::Cancel(const SampleSink* sink) {
  // A loop that has ended has nothing to cancel.
  loop_.Post([this, sink] { CancelNow(sink); }).IgnoreError();
}

void Sampler::CancelNow(const SampleSink* sink) {
  if (run_ != nullptr && sink_.get() == sink) return run_->End(Cancelled());
  const auto found = std::find_if(
      queue_.begin(), queue_.end(),
      [sink](const Waiting& waiting) { return waiting.sink.get() == sink; });
  if (found == queue_.end()) return;
  found->sink->OnEnd(Cancelled());
  queue_.erase(found);
}

void Sampler::Stop() {
  stopped_ = true;
  for (const Waiting& waiting : std::exchange(queue_, {})) {
    waiting.sink->OnEnd(Stopping());
  }
  if (sink_ != nullptr) std::exchange(sink_, nullptr)->OnEnd(Stopping());
  if (run_ != nullptr) run_->End(Stopping());
}

void Sampler::OnWorkerUp(WorkerId worker) {
  if (run_ != nullptr) run_->OnWorkerUp(worker);
}

void Sampler::OnWorkerDown(WorkerId worker) {
  if (run_ != nullptr) run_->OnWorkerDown(worker);
}

void Sampler::OnDeviceLost() {
  if (run_ != nullptr) run_->OnDeviceLost();
}

}  // namespace roundhouse
