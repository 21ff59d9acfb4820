#include "tests/bench/copy_rate.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire/arena.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::bench {
namespace {

using worker::CopyQueue;
using worker::CopyRequest;

constexpr uint64_t kDataOffset = 1 << 16;

// Counts the ends of requests.
class Ends {
 public:
  void Add(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = status;
    ++count_;
    changed_.notify_all();
  }
  absl::Status Await(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_ == count; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;  // guarded by mutex_
  int count_ = 0;        // guarded by mutex_
};

struct Area {
  std::byte* to;
  const std::byte* from;
};

absl::StatusOr<int64_t> TimeQueue(CopyQueue& queue,
                                  const CopyRateOptions& options, Area area,
                                  worker::CopyStats& stats) {
  Ends ends;
  const int64_t began_ns = MonotonicNs();
  for (int i = 0; i < options.requests; ++i) {
    const uint64_t at = options.copy_bytes * static_cast<uint64_t>(i);
    CopyRequest request;
    request.priority = worker::CopyPriority::kBulk;
    request.purpose = wire::Purpose::kWeights;
    request.to = area.to + at;
    request.from = area.from + at;
    request.bytes = options.copy_bytes;
    request.stats = &stats;
    request.done = [&ends](const absl::Status& status) { ends.Add(status); };
    RETURN_IF_ERROR(queue.Enqueue(std::move(request)));
  }
  RETURN_IF_ERROR(ends.Await(options.requests));
  return MonotonicNs() - began_ns;
}

int64_t TimeMemcpy(const CopyRateOptions& options, Area area) {
  const int64_t began_ns = MonotonicNs();
  for (int i = 0; i < options.requests; ++i) {
    const uint64_t at = options.copy_bytes * static_cast<uint64_t>(i);
    std::memcpy(area.to + at, area.from + at, options.copy_bytes);
  }
  return MonotonicNs() - began_ns;
}

}  // namespace

absl::StatusOr<std::vector<double>> MeasureCopyRate(
    const CopyRateOptions& options) {
  const uint64_t bytes =
      options.copy_bytes * static_cast<uint64_t>(options.requests);
  ASSIGN_OR_RETURN(const auto arena,
                   wire::Arena::Create(kDataOffset + bytes, 1));
  std::byte* const host = arena->At<std::byte>(kDataOffset, bytes);
  const auto device = worker::NewCpuDevice(2 * bytes);
  ASSIGN_OR_RETURN(const auto buffer, device->Allocate(bytes, "the copy"));
  std::memset(host, 1, bytes);
  std::memset(buffer->data(), 2, bytes);
  worker::CopyStats stats;
  worker::CopyQueueOptions queue_options;
  queue_options.direction = options.direction;
  ASSIGN_OR_RETURN(const auto queue, CopyQueue::Create(*device, queue_options));
  const bool up = options.direction == wire::Direction::kH2D;
  const Area area =
      up ? Area{buffer->data(), host} : Area{host, buffer->data()};
  std::vector<double> ratios;
  for (int i = -1; i < options.repetitions; ++i) {
    const bool plain_first = i % 2 == 0;  // who is second finds warm caches
    int64_t plain_ns = plain_first ? TimeMemcpy(options, area) : 0;
    ASSIGN_OR_RETURN(const int64_t queue_ns,
                     TimeQueue(*queue, options, area, stats));
    if (!plain_first) plain_ns = TimeMemcpy(options, area);
    if (i < 0) continue;  // pages and caches are warm from here on
    ratios.push_back(static_cast<double>(plain_ns) /
                     static_cast<double>(queue_ns));
  }
  return ratios;
}

}  // namespace roundhouse::bench
