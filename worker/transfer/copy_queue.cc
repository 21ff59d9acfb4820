#include "worker/transfer/copy_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/device/named_range.h"

namespace roundhouse::worker {
namespace {

constexpr const char* kRangeNames[wire::kDirections][wire::kPurposes] = {
    {"h2d weights", "h2d gradients", "h2d activations", "h2d other"},
    {"d2h weights", "d2h gradients", "d2h activations", "d2h other"}};

// Cut into chunks.
bool IsBulk(const CopyRequest& request) {
  return request.priority != CopyPriority::kActivation;
}

void RaiseTo(std::atomic<int64_t>& longest, int64_t value) {
  int64_t seen = longest.load(std::memory_order_relaxed);
  while (seen < value && !longest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyQueue>> CopyQueue::Create(
    Device& device, const CopyQueueOptions& options) {
  if (options.chunks.bytes == 0 || options.chunks.in_flight < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunks of ", options.chunks.bytes, " bytes, ",
        options.chunks.in_flight, " in flight: both must be at least 1"));
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
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

absl::Status CopyQueue::Enqueue(CopyRequest request) {
  ROUNDHOUSE_CHECK(request.stats != nullptr && request.done != nullptr &&
                   request.bytes > 0);
  {
    MutexLock lock(mutex_);
    if (WaitingCount() >= kMaxQueuedCopies) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxQueuedCopies, " copies are waiting already"));
    }
    Entries& queue = QueueOf(request.priority);
    auto entry = std::make_shared<Entry>();
    entry->request = std::move(request);
    entry->enqueued_ns = MonotonicNs();
    queue.push_back(std::move(entry));
  }
  wake_.NotifyAll();
  return absl::OkStatus();
}

size_t CopyQueue::WaitingCount() const {
  size_t count = 0;
  for (const Entries& queue : waiting_) count += queue.size();
  return count;
}

CopyQueue::Entries& CopyQueue::NextQueue() {
  return *std::find_if(std::begin(waiting_), std::end(waiting_),
                       [](const Entries& queue) { return !queue.empty(); });
}

CopyCounters CopyQueue::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

uint64_t CopyQueue::ChunkBytes(const Entry& entry) const {
  const CopyRequest& request = entry.request;
  const bool up = options_.direction == wire::Direction::kH2D;
  const std::byte* const host =
      (up ? request.from : request.to) + entry.begun_bytes;
  uint64_t bytes = request.bytes - entry.begun_bytes;
  if (IsBulk(request)) bytes = std::min(bytes, options_.chunks.bytes);
  const HostPieces& pieces = options_.host_pieces;
  if (pieces.piece_bytes == 0) return bytes;
  const auto offset = static_cast<uint64_t>(host - pieces.begin);
  return std::min(bytes, pieces.piece_bytes - offset % pieces.piece_bytes);
}

void CopyQueue::NoteBegin(const Entry& entry, uint64_t bytes) {
  const int purpose = static_cast<int>(entry.request.purpose);
  const int direction = static_cast<int>(options_.direction);
  counters_.bytes[purpose] += bytes;
  entry.request.stats->bytes[direction][purpose].fetch_add(bytes);
  if (!IsBulk(entry.request)) {
    if (entry.begun_bytes == 0) ++counters_.activations;
    return;
  }
  ++counters_.bulk_chunks;
}

void CopyQueue::NoteAwaited(Entry& entry, int64_t began_ns, int64_t ended_ns) {
  if (IsBulk(entry.request)) return;
  ++entry.bulk_chunks_awaited;
  entry.waited_ns += ended_ns - std::max(began_ns, entry.enqueued_ns);
  counters_.most_bulk_chunks_awaited =
      std::max(counters_.most_bulk_chunks_awaited, entry.bulk_chunks_awaited);
  counters_.longest_activation_wait_ns =
      std::max(counters_.longest_activation_wait_ns, entry.waited_ns);
  RaiseTo(entry.request.stats->longest_activation_wait_ns, entry.waited_ns);
}

void CopyQueue::NoteBulkChunkEnd(int64_t began_ns, int64_t ended_ns) {
  for (const Chunk& chunk : in_flight_) {
    NoteAwaited(*chunk.entry, began_ns, ended_ns);
  }
  for (const auto& entry : QueueOf(CopyPriority::kActivation)) {
    NoteAwaited(*entry, began_ns, ended_ns);
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

absl::StatusOr<std::unique_ptr<Event>> CopyQueue::Copy(const Entry& entry,
                                                       uint64_t bytes) {
  const CopyRequest& request = entry.request;
  std::byte* const to = request.to + entry.begun_bytes;
  const std::byte* const from = request.from + entry.begun_bytes;
  RETURN_IF_ERROR(options_.direction == wire::Direction::kH2D
                      ? stream_->CopyToDevice(to, from, bytes)
                      : stream_->CopyToHost(to, from, bytes));
  return stream_->Record();
}

void CopyQueue::WaitForLink(int64_t free_at_ns) {
  MutexLock lock(mutex_);
  for (int64_t now = MonotonicNs(); now < free_at_ns && !stopping_;
       now = MonotonicNs()) {
    wake_.WaitUntil(mutex_,
                    CondVar::DeadlineIn(absl::Nanoseconds(free_at_ns - now)));
  }
}

void CopyQueue::FinishIfDone(const Entry& entry) {
  if (entry.queued || entry.chunks_in_flight > 0) return;
  mutex_.Unlock();
  entry.request.done(entry.status);
  mutex_.Lock();
}

bool CopyQueue::GivenUp(const Entry& entry) const {
  const std::atomic<bool>* const abandoned = entry.request.abandoned;
  return stopping_ || !entry.status.ok() ||
         (abandoned != nullptr && *abandoned);
}

void CopyQueue::DropFirst() {
  Entries& queue = NextQueue();
  const std::shared_ptr<Entry> entry = std::move(queue.front());
  queue.pop_front();
  entry->queued = false;
  entry->status.Update(absl::CancelledError("copy abandoned"));
  FinishIfDone(*entry);
}

void CopyQueue::BeginChunk() {
  Entries& queue = NextQueue();
  const std::shared_ptr<Entry> entry = queue.front();
  const CopyRequest& request = entry->request;
  const uint64_t bytes = ChunkBytes(*entry);
  NoteBegin(*entry, bytes);
  mutex_.Unlock();
  absl::Status status;
  if (request.after != nullptr && entry->begun_bytes == 0) {
    status = request.after->Wait();
  }
  Chunk chunk{.entry = entry, .bytes = bytes, .began_ns = MonotonicNs()};
  chunk.link_free_ns = pacer_.Carry(chunk.began_ns, bytes);
  if (status.ok()) {
    const NamedRange range(kRangeNames[static_cast<int>(options_.direction)]
                                      [static_cast<int>(request.purpose)],
                           request.place.layer, request.place.layer,
                           request.place.micro_batch);
    absl::StatusOr<std::unique_ptr<Event>> copied = Copy(*entry, bytes);
    status = copied.status();
    if (copied.ok()) chunk.copied = *std::move(copied);
  }
  mutex_.Lock();
  if (!status.ok()) {
    entry->status = std::move(status);  // dropped in the next turn
    return;
  }
  ++entry->chunks_in_flight;
  entry->begun_bytes += bytes;
  entry->queued = entry->begun_bytes < request.bytes;
  if (!entry->queued) queue.pop_front();
  in_flight_.push_back(std::move(chunk));
}

void CopyQueue::FinishChunk() {
  const Chunk chunk = std::move(in_flight_.front());
  in_flight_.pop_front();
  Entry& entry = *chunk.entry;
  mutex_.Unlock();
  const absl::Status status = chunk.copied->Wait();
  WaitForLink(chunk.link_free_ns);
  // The link carries one chunk after the other.
  const int64_t began_ns = std::max(chunk.began_ns, last_end_ns_);
  last_end_ns_ = MonotonicNs();
  ++chunks_;
  KeepInterval(entry, chunk.bytes, began_ns, last_end_ns_);
  mutex_.Lock();
  entry.request.stats->busy_ns[static_cast<int>(options_.direction)].fetch_add(
      last_end_ns_ - began_ns);
  if (IsBulk(entry.request)) NoteBulkChunkEnd(began_ns, last_end_ns_);
  entry.status.Update(status);
  --entry.chunks_in_flight;
  FinishIfDone(entry);
}

bool CopyQueue::ChunkIsDue() {
  if (in_flight_.empty()) return false;
  if (!HasWork()) return true;
  const auto in_flight = static_cast<int>(in_flight_.size());
  if (in_flight >= options_.chunks.in_flight) return true;
  // Waiting for what comes before a copy must hold up no copy that is made.
  const Entry& next = *NextQueue().front();
  return next.request.after != nullptr && next.begun_bytes == 0;
}

void CopyQueue::Run() {
  MutexLock lock(mutex_);
  while (true) {
    if (in_flight_.empty()) {
      while (!stopping_ && !HasWork()) wake_.Wait(mutex_);
    }
    if (ChunkIsDue()) {
      FinishChunk();
    } else if (!HasWork()) {
      return;
    } else if (GivenUp(*NextQueue().front())) {
      DropFirst();
    } else {
      BeginChunk();
    }
  }
}

}  // namespace roundhouse::worker
