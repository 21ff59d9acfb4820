// A SampleEngine that a test answers for.
#ifndef ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_
#define ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

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
    const std::lock_guard<std::mutex> lock(mutex_);
    ++cancelled_;
    changed_.notify_all();
  }
  void AwaitCancelled(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return cancelled_ >= count; });
  }

  Answer answer;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int cancelled_ = 0;  // Guarded by mutex_.
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_FAKE_SAMPLER_H_
