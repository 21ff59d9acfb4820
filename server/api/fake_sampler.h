// A SampleEngine that a test answers for.
#ifndef ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_
#define ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "server/api/sample_engine.h"

namespace roundhouse {

// Thread-safe; `answer` is set before the server runs a call.
class FakeSampler final : public SampleEngine {
 public:
  using Answer =
      std::function<void(const SampleQuestion&, std::shared_ptr<SampleSink>)>;

  void Start(const SampleQuestion& question,
             std::shared_ptr<SampleSink> sink) override {
    if (answer) answer(question, std::move(sink));
  }
  void Cancel(const SampleSink*) override {
    MutexLock lock(mutex_);
    ++cancelled_;
    changed_.NotifyAll();
  }
  void AwaitCancelled(int count) {
    MutexLock lock(mutex_);
    while (cancelled_ < count) changed_.Wait(mutex_);
  }

  Answer answer;

 private:
  Mutex mutex_;
  CondVar changed_;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_
