// Writes a job's checkpoints and outputs: the directory on the background
// thread, the tensors by the files worker, the rest and the rename on the
// background thread again.  What can't be written may be held: it stays as it
// was planned, and is written again, or given up, when somebody says so.
//
//   idle --Write--> writing --written, or failed for good--> idle (done)
//                    |  ^
//               holds|  |TryAgain
//                    v  |
//                   waiting --GiveUp--> idle (done: CANCELLED)
//
// Owned by the job's runner.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_DIRECTORY_WRITER_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_DIRECTORY_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/arena/host_arena.h"
#include "server/loop/background.h"
#include "server/weights/checkpoint.h"
#include "server/weights/file_operation.h"

namespace roundhouse {

class DirectoryWriter {
 public:
  using Done = std::function<void(absl::Status)>;

  // What it asks, and tells, the job of what can't be written.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Whether the job waits with a directory that failed so.
    virtual bool Holds(const DirectoryPlan& plan,
                       const absl::Status& status) const = 0;
    // It waits with it, which takes so many bytes of the disk.
    virtual void OnHeld(const DirectoryPlan& plan, const absl::Status& status,
                        uint64_t need_bytes) = 0;
    // What was held is over, and its `done` is next; after that OnResumed.
    virtual void OnUnheld() = 0;
    virtual void OnResumed() = 0;
  };

  // All outlive it.
  struct Surroundings {
    HostArena& arena;
    Background& background;
    FileOperation& operation;
  };

  DirectoryWriter(const Surroundings& around, Owner& owner)
      : around_(around), owner_(owner) {}
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  // A plan with a manifest is a checkpoint: its shards are filled in with what
  // the files worker says.  Once, from the loop, `done` gets OK, the errors of
  // the plan's add_parts, BeginDirectory and FinishDirectory, UNAVAILABLE when
  // the arena has no room for the tables, what the worker failed with, or
  // CANCELLED by GiveUp. REQUIRES: no other is written or held.
  void Write(DirectoryPlan plan, Done done);

  // Bytes of the files of the directory that was finished last.
  uint64_t finished_bytes() const { return finished_bytes_; }

  // One is held, or is written again after it was.
  bool held() const { return held_.has_value(); }
  // It is held, and nobody tries.
  bool waiting() const { return held_.has_value() && !held_->trying; }
  // Writes it again.  REQUIRES: waiting() (checked).
  void TryAgain();
  // Nobody waits for it any more; no effect unless waiting().
  void GiveUp();

 private:
  struct Job {
    std::shared_ptr<DirectoryPlan> plan;  // shared with the background thread
    Done done;
    // What it takes of the disk; what is copied into it counts as it was when
    // it was begun.
    std::shared_ptr<uint64_t> need_bytes = std::make_shared<uint64_t>(0);
  };
  struct Held {
    Job job;
    bool trying = false;
  };

  void Begin(const Job& job);
  void WriteParts(const Job& job);
  void Finish(const Job& job);
  void Abandon(const Job& job, const absl::Status& why);
  void OnWritten(const Job& job, const absl::Status& status);

  const Surroundings around_;
  Owner& owner_;
  std::optional<Held> held_;
  uint64_t finished_bytes_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_DIRECTORY_WRITER_H_
