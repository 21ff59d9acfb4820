#include "worker/transfer/copy_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/clock.h"
#include "worker/device/named_range.h"

namespace roundhouse::worker {
namespace {

constexpr const char* kRangeNames[wire::kDirections][wire::kPurposes] = {
    {"h2d weights", "h2d gradients", "h2d activations", "h2d other"},
    {"d2h weights", "d2h gradients", "d2h activations", "d2h other"}};

bool IsBulk(const CopyRequest& request) {
  return request.priority == CopyPriority::kBulk;
}

void RaiseTo(std::atomic<int64_t>& longest, int64_t value) {
  int64_t seen = longest.load(std::memory_order_relaxed);
  while (seen < value && !longest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyQueue>> CopyQueue::Create(
    Device& device, const CopyQueueOptions& options) {
  if (options.chunk_bytes == 0) {
    return absl::InvalidArgumentError("chunk_bytes must be at least 1");
  }
  if (!(options.link_gbps >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("link_gbps must not be negative: ", options.link_gbps));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  return std::unique_ptr<CopyQueue>(new CopyQueue(std::move(stream), options));
}

CopyQueue::CopyQueue(std::unique_ptr<Stream> stream,
                     const CopyQueueOptions& options)
    : options_(options),
      stream_(std::move(stream)),
      pacer_(options.link_gbps),
      thread_([this] { Run(); }) {}

CopyQueue::~CopyQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

absl::Status CopyQueue::Enqueue(CopyRequest request) {
  ROUNDHOUSE_CHECK(request.stats != nullptr && request.done != nullptr &&
                   request.bytes > 0);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (activations_.size() + bulk_.size() >= kMaxQueuedCopies) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxQueuedCopies, " copies are waiting already"));
    }
    const bool ahead =
        !IsBulk(request) && options_.order == CopyOrder::kActivationsFirst;
    Entry entry{.request = std::move(request), .enqueued_ns = MonotonicNow()};
    (ahead ? activations_ : bulk_).push_back(std::move(entry));
  }
  wake_.notify_all();
  return absl::OkStatus();
}

CopyCounters CopyQueue::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

std::deque<CopyQueue::Entry>* CopyQueue::NextQueue() {
  if (!activations_.empty()) return &activations_;
  if (!bulk_.empty()) return &bulk_;
  return nullptr;
}

bool CopyQueue::ActivationQueued() const {
  if (options_.order == CopyOrder::kActivationsFirst) {
    return !activations_.empty();
  }
  return std::any_of(bulk_.begin(), bulk_.end(),
                     [](const Entry& entry) { return !IsBulk(entry.request); });
}

uint64_t CopyQueue::ChunkBytes(const Entry& entry) const {
  const uint64_t left = entry.request.bytes - entry.copied_bytes;
  return IsBulk(entry.request) ? std::min(left, options_.chunk_bytes) : left;
}

void CopyQueue::NoteBegin(const Entry& entry, uint64_t bytes) {
  const int purpose = static_cast<int>(entry.request.purpose);
  const int direction = static_cast<int>(options_.direction);
  counters_.bytes[purpose] += bytes;
  entry.request.stats->bytes[direction][purpose].fetch_add(bytes);
  if (!IsBulk(entry.request)) {
    ++counters_.activations;
    return;
  }
  ++counters_.bulk_chunks;
  if (ActivationQueued()) ++counters_.bulk_chunks_begun_past_activation;
}

void CopyQueue::NoteBulkChunkEnd(int64_t began_ns) {
  const int64_t now = MonotonicNow();
  const bool ordered = options_.order == CopyOrder::kActivationsFirst;
  for (Entry& entry : ordered ? activations_ : bulk_) {
    if (IsBulk(entry.request)) continue;
    ++entry.bulk_chunks_awaited;
    entry.waited_ns += now - std::max(began_ns, entry.enqueued_ns);
    counters_.most_bulk_chunks_awaited =
        std::max(counters_.most_bulk_chunks_awaited, entry.bulk_chunks_awaited);
    counters_.longest_activation_wait_ns =
        std::max(counters_.longest_activation_wait_ns, entry.waited_ns);
    RaiseTo(entry.request.stats->longest_activation_wait_ns, entry.waited_ns);
  }
}

// The entry's last interval goes on if the chunk before this one was the
// entry's too.
void CopyQueue::KeepInterval(Entry& entry, uint64_t bytes, int64_t began_ns,
                             int64_t ended_ns) {
  CopyStats& stats = *entry.request.stats;
  if (!stats.keep_intervals) return;
  const int direction = static_cast<int>(options_.direction);
  std::vector<wire::CopyInterval>& kept = stats.intervals[direction];
  const bool goes_on = entry.last_chunk != 0 && entry.last_chunk + 1 == chunks_;
  entry.last_chunk = chunks_;
  if (goes_on && entry.kept) {
    kept.back().ended_ns = ended_ns;
    kept.back().bytes += bytes;
    return;
  }
  if (goes_on) return;
  entry.kept = kept.size() < wire::kMaxTracedCopies;
  if (!entry.kept) {
    ++stats.intervals_left_out[direction];
    return;
  }
  kept.push_back({.started_ns = began_ns,
                  .ended_ns = ended_ns,
                  .bytes = bytes,
                  .direction = options_.direction,
                  .purpose = entry.request.purpose,
                  .layer = entry.request.place.layer,
                  .micro_batch = entry.request.place.micro_batch});
}

absl::Status CopyQueue::CopyChunk(const CopyRequest& request, uint64_t offset,
                                  uint64_t bytes) {
  if (request.after != nullptr) RETURN_IF_ERROR(request.after->Wait());
  std::byte* const to = request.to + offset;
  const std::byte* const from = request.from + offset;
  RETURN_IF_ERROR(options_.direction == wire::Direction::kH2D
                      ? stream_->CopyToDevice(to, from, bytes)
                      : stream_->CopyToHost(to, from, bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> copied, stream_->Record());
  return copied->Wait();
}

void CopyQueue::WaitForLink(uint64_t bytes, int64_t began_ns) {
  const int64_t free_at_ns = pacer_.Carry(began_ns, bytes);
  std::unique_lock<std::mutex> lock(mutex_);
  for (int64_t now = MonotonicNow(); now < free_at_ns && !stopping_;
       now = MonotonicNow()) {
    wake_.wait_for(lock, std::chrono::nanoseconds(free_at_ns - now));
  }
}

void CopyQueue::Finish(std::unique_lock<std::mutex>& lock, Entry entry,
                       absl::Status status) {
  lock.unlock();
  entry.request.done(std::move(status));
  lock.lock();
}

void CopyQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || NextQueue() != nullptr; });
    std::deque<Entry>* const queue = NextQueue();
    if (queue == nullptr) return;
    // Taken out: Enqueue may grow the deque meanwhile.
    Entry entry = std::move(queue->front());
    queue->pop_front();
    const CopyRequest& request = entry.request;
    if (stopping_ || (request.abandoned != nullptr && *request.abandoned)) {
      Finish(lock, std::move(entry), absl::CancelledError("copy abandoned"));
      continue;
    }
    const uint64_t bytes = ChunkBytes(entry);
    const int64_t began_ns = MonotonicNow();
    NoteBegin(entry, bytes);
    lock.unlock();
    absl::Status status;
    {
      const NamedRange range(kRangeNames[static_cast<int>(options_.direction)]
                                        [static_cast<int>(request.purpose)],
                             request.place.layer, request.place.layer,
                             request.place.micro_batch);
      status = CopyChunk(request, entry.copied_bytes, bytes);
      WaitForLink(bytes, began_ns);
    }
    const int64_t ended_ns = MonotonicNow();
    ++chunks_;
    KeepInterval(entry, bytes, began_ns, ended_ns);
    lock.lock();
    request.stats->busy_ns[static_cast<int>(options_.direction)].fetch_add(
        ended_ns - began_ns);
    if (IsBulk(request)) NoteBulkChunkEnd(began_ns);
    entry.copied_bytes += bytes;
    if (!status.ok() || entry.copied_bytes == request.bytes) {
      Finish(lock, std::move(entry), std::move(status));
    } else {
      bulk_.push_front(std::move(entry));
    }
  }
}

}  // namespace roundhouse::worker
