// One direction of a device's link: a thread that copies between host and
// device memory, activations before weights and gradients, and these before
// what backfill jobs copy.
//
// Bulk copies, and all of backfill jobs, are cut into chunks; before each chunk
// the thread looks whether an activation is queued, so that none waits for more
// than the chunks in flight (docs/design/cuda.md).  Several in flight keep a
// GPU's link busy while this thread wakes up from one and begins the next. Both
// directions are ordered that way: a worker has one queue for each.  With a
// throttle a chunk occupies the link for as long as that link would need.
//
// Owner: the slot runner.  Thread-safe.  Callbacks run on the queue's thread,
// without its lock, and must not block for long.
#ifndef ROUNDHOUSE_WORKER_TRANSFER_COPY_QUEUE_H_
#define ROUNDHOUSE_WORKER_TRANSFER_COPY_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/wire/messages.h"
#include "worker/device/device.h"
#include "worker/transfer/link_pacer.h"

namespace roundhouse::worker {

// Copies waiting in one queue; a full queue refuses.
inline constexpr size_t kMaxQueuedCopies = 16384;

// Host memory that is pinned piece by piece: no chunk has bytes of two pieces.
struct HostPieces {
  const std::byte* begin = nullptr;
  uint64_t piece_bytes = 0;  // 0: it is all one
};

struct CopyQueueOptions {
  wire::Direction direction = wire::Direction::kH2D;
  CopyChunks chunks;
  HostPieces host_pieces;
  double link_gbps = 0;  // 10^9 bits per second; 0: as fast as it goes
};

// What a slot's copies amounted to.  Written by the queues' threads.
struct CopyStats {
  std::atomic<uint64_t> bytes[wire::kDirections][wire::kPurposes] = {};
  std::atomic<int64_t> busy_ns[wire::kDirections] = {};  // link occupied
  // The longest that one of the slot's activations stood behind bulk chunks.
  std::atomic<int64_t> longest_activation_wait_ns{0};

  // Each copy's intervals, if they are wanted.  A direction's are written by
  // its queue's thread alone and can be read once its copies are done.
  bool keep_intervals = false;
  std::vector<wire::CopyInterval> intervals[wire::kDirections];
  uint64_t intervals_left_out[wire::kDirections] = {};
};

// What the bytes of an interval's record are for.
struct CopyPlace {
  uint32_t layer = 0;
  int32_t micro_batch = -1;  // of the round; -1: none
};

// kActivation: activations and their gradients.  kBulk: weights and gradient
// sums, and what may wait for them.  kBackfill: everything of backfill jobs.
enum class CopyPriority { kActivation, kBulk, kBackfill };
inline constexpr int kCopyPriorities = 3;

struct CopyRequest {
  CopyPriority priority = CopyPriority::kActivation;
  wire::Purpose purpose = wire::Purpose::kActivations;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
  std::unique_ptr<Event> after;  // waited for first; null: nothing to wait for
  CopyStats* stats = nullptr;    // not null; outlives `done`
  CopyPlace place;
  // When it becomes true, what is not copied yet stays uncopied and `done` gets
  // CANCELLED.  May be null.
  const std::atomic<bool>* abandoned = nullptr;
  // Called once: OK after the last byte, CANCELLED, or the device's error.
  std::function<void(absl::Status)> done;
};

// Since the queue was made.
struct CopyCounters {
  uint64_t bytes[wire::kPurposes] = {};
  uint64_t bulk_chunks = 0;
  uint64_t activations = 0;
  // The most bulk chunks (those in flight included) that one activation stood
  // behind: at most CopyChunks::in_flight.
  uint64_t most_bulk_chunks_awaited = 0;
  int64_t longest_activation_wait_ns = 0;
};

class CopyQueue {
 public:
  // Starts the thread.  INVALID_ARGUMENT: chunks of 0 bytes, none in flight, a
  // negative rate.
  static absl::StatusOr<std::unique_ptr<CopyQueue>> Create(
      Device& device, const CopyQueueOptions& options);
  // Requests not yet copied get CANCELLED; the chunks in flight are finished.
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Copies of one priority are made in the order given.  RESOURCE_EXHAUSTED:
  // kMaxQueuedCopies are waiting; `done` is then not called.
  absl::Status Enqueue(CopyRequest request);

  CopyCounters counters() const;

 private:
  struct Entry {
    CopyRequest request;
    absl::Status status;  // the first error of its chunks
    uint64_t begun_bytes = 0;
    int chunks_in_flight = 0;
    bool queued = true;                // in waiting_
    int64_t waited_ns = 0;             // behind bulk chunks
    uint64_t bulk_chunks_awaited = 0;  // likewise
    int64_t enqueued_ns = 0;
    uint64_t last_chunk = 0;  // of all the queue's; 0: none yet
    bool kept = false;        // its last chunk is in the newest interval
  };
  using Entries = std::deque<std::shared_ptr<Entry>>;

  // Begun and not waited for yet.
  struct Chunk {
    std::shared_ptr<Entry> entry;
    uint64_t bytes = 0;
    int64_t began_ns = 0;
    int64_t link_free_ns = 0;  // when the throttled link has carried it
    std::unique_ptr<Event> copied;
  };

  CopyQueue(std::unique_ptr<Stream> stream, const CopyQueueOptions& options);

  void Run();
  size_t WaitingCount() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return WaitingCount() > 0;
  }
  Entries& QueueOf(CopyPriority priority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_[static_cast<size_t>(priority)];
  }
  // REQUIRES: HasWork().
  Entries& NextQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a chunk in flight has to be waited for before the next one begins,
  // if there is one.
  bool ChunkIsDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GivenUp(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteBegin(const Entry& entry, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteBulkChunkEnd(int64_t began_ns, int64_t ended_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAwaited(Entry& entry, int64_t began_ns, int64_t ended_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The following release the mutex while they copy, wait or call back.
  // REQUIRES: HasWork().
  void BeginChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: a chunk is in flight.
  void FinishChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls back if nothing of it is queued or in flight.
  void FinishIfDone(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<std::unique_ptr<Event>> Copy(const Entry& entry,
                                              uint64_t bytes);
  void KeepInterval(Entry& entry, uint64_t bytes, int64_t began_ns,
                    int64_t ended_ns);
  uint64_t ChunkBytes(const Entry& entry) const;
  void WaitForLink(int64_t free_at_ns);

  const CopyQueueOptions options_;
  const std::unique_ptr<Stream> stream_;  // used by the thread only
  LinkPacer pacer_;                       // likewise
  std::deque<Chunk> in_flight_;           // likewise; in the stream's order
  uint64_t chunks_ = 0;                   // likewise; waited for
  int64_t last_end_ns_ = 0;               // likewise; of the newest of them

  mutable Mutex mutex_;
  CondVar wake_;
  Entries waiting_[kCopyPriorities] ABSL_GUARDED_BY(mutex_);
  CopyCounters counters_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_TRANSFER_COPY_QUEUE_H_
