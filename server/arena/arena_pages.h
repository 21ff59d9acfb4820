// The pages behind the arena's ranges: there before a worker needs them, gone
// or zero when the range is free.
//
// The system makes and clears some GB of pages a second, and a large job has
// hundreds of GB: what is large is done by a thread of its own, piece by piece,
// what is wanted before what is given back.  Small ranges are done at once.
//
// What becomes of pages that are given back is for whoever makes it to say.
// GPUs want them kept: a worker has pinned them, and would go on copying from
// and to pages that the arena no longer has.
//
// Runs on the event loop's thread, as its callbacks do.
#ifndef ROUNDHOUSE_SERVER_ARENA_ARENA_PAGES_H_
#define ROUNDHOUSE_SERVER_ARENA_ARENA_PAGES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/wire/arena.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// Pages that are kept come by pieces of ArenaPages::kPieceBytes.
enum class FreedPages { kReturned, kKept };

struct ArenaPagesOptions {
  FreedPages freed = FreedPages::kReturned;
  EventLoop* loop = nullptr;             // null: everything is done at once
  uint64_t background_bytes = 64 << 20;  // of one range, from which on
  // Pages are made through the daemon's mapping, which asks for huge ones
  // (arena_placement.h); else without, which is faster.
  bool huge = false;
};

class ArenaPages {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 20;
  using Waiter = uint64_t;

  // `arena` and the loop outlive it.
  ArenaPages(wire::Arena& arena, const ArenaPagesOptions& options);
  // Finishes the piece under way; nobody is called back.
  ~ArenaPages();
  ArenaPages(const ArenaPages&) = delete;
  ArenaPages& operator=(const ArenaPages&) = delete;

  // The range's pages are there when WhenReady says so, and zero but for what
  // the caller wrote meanwhile.  RESOURCE_EXHAUSTED: the system has no more.
  absl::Status Add(uint64_t offset, uint64_t bytes);

  // Clears a range that Add got.  True: done.  False: `done` comes when it is.
  bool Clean(uint64_t offset, uint64_t bytes, std::function<void()> done);

  // Calls `done` when everything added so far is there, at once if it is.
  // RESOURCE_EXHAUSTED: the system has no more.
  Waiter WhenReady(std::function<void(absl::Status)> done);
  // No call follows.  No effect after it.
  void Forget(Waiter waiter);

 private:
  struct Task {
    uint64_t offset = 0;  // of the range; 0: all kept pages grow to `end`
    uint64_t begin = 0;   // of what is still to do
    uint64_t end = 0;
    bool dropped = false;
    std::function<void(absl::Status)> done;  // on the loop
  };
  // Whose task: of adds_ or cleans_.
  enum class Work { kAdd, kClean };
  struct Waiting {
    Waiter id = 0;
    uint64_t last_task = 0;
    absl::Status status;
    std::function<void(absl::Status)> done;
  };

  bool keeps() const { return options_.freed == FreedPages::kKept; }
  bool InBackground(uint64_t bytes) const;
  absl::Status AddNow(uint64_t begin, uint64_t end);
  void CleanNow(uint64_t begin, uint64_t end);
  uint64_t kept_bytes() const {
    return arena_.header().kept_bytes.load(std::memory_order_acquire);
  }
  void Keep(uint64_t end) {
    arena_.header().kept_bytes.store(end, std::memory_order_release);
  }
  absl::Status Grow(uint64_t end);
  void NoteGrowthFailed() { growth_end_ = kept_bytes(); }
  void QueueAdd(uint64_t offset, uint64_t end);
  void Queue(Work work, Task task);
  void OnAdded(uint64_t task, const absl::Status& status);

  void Run();
  // One piece of the next task.  Releases the mutex while it works and calls
  // back.
  void DoPiece(Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::deque<Task>& TasksOf(Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return work == Work::kAdd ? adds_ : cleans_;
  }
  void Post(std::function<void()> closure);

  wire::Arena& arena_;
  const ArenaPagesOptions options_;
  uint64_t next_id_ = 1;
  uint64_t last_add_ = 0;    // of those queued
  uint64_t last_added_ = 0;  // of those done
  uint64_t growth_end_ =
      0;  // of the kept pages, once all that is queued is done
  std::deque<Waiting> waiting_;

  Mutex mutex_;
  CondVar wake_;
  // The thread alone takes tasks out.
  std::deque<Task> adds_ ABSL_GUARDED_BY(mutex_);
  std::deque<Task> cleans_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ARENA_ARENA_PAGES_H_
