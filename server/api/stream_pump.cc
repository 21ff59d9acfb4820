#include "server/api/stream_pump.h"

#include <chrono>
#include <vector>

#include "base/log.h"

namespace roundhouse {

StreamPump::StreamPump() {
  thread_ = std::thread([this] { Loop(); });
}

StreamPump::~StreamPump() { Stop(); }

void StreamPump::Stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ROUNDHOUSE_CHECK(streams_.empty());
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool StreamPump::Add(std::shared_ptr<PumpedStream> stream) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (streams_.size() >= kMaxStreams) return false;
    PumpedStream* const key = stream.get();
    streams_.emplace(key, std::move(stream));
    woken_ = true;
  }
  changed_.notify_one();
  return true;
}

void StreamPump::Remove(PumpedStream* stream) {
  std::shared_ptr<PumpedStream> last;  // Dies without the lock.
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  last = std::move(found->second);
  streams_.erase(found);
}

void StreamPump::Wake() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void StreamPump::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    changed_.wait_for(
        lock, std::chrono::nanoseconds(absl::ToInt64Nanoseconds(kPumpInterval)),
        [this] { return stop_ || woken_; });
    woken_ = false;
    std::vector<std::shared_ptr<PumpedStream>> streams;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
    lock.unlock();
    for (const auto& stream : streams) stream->Pump(absl::Now());
    streams.clear();
    lock.lock();
  }
}

}  // namespace roundhouse
