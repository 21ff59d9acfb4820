// The queue to the files worker, for jobs, samples and exports: one operation
// at a time, in the order in which they were asked for.
//
// Operations may be killed at any point and done again.  One that a dead
// process had goes to the next, behind those that wait: it may be what kills.
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_FILES_LINE_H_
#define ROUNDHOUSE_SERVER_WORKERS_FILES_LINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class FilesLine final : private ReplyHandler {
 public:
  using Operation = std::variant<wire::FileOp, wire::MergeRows>;
  // Called once, from the loop: OK, what the worker failed with, INTERNAL after
  // as many deaths as the operation may cost, CANCELLED once abandoned.
  using Done = std::function<void(absl::Status)>;
  enum class Ticket : uint64_t { kNone = 0 };

  // `pool` outlives it.
  explicit FilesLine(WorkerPool& pool) : pool_(pool) {}
  ~FilesLine() override;
  FilesLine(const FilesLine&) = delete;
  FilesLine& operator=(const FilesLine&) = delete;

  // Gives the operation its number, which is the ticket's.  `most_deaths`: of
  // the files worker over it, after which it is given up.  A worker that
  // answers and dies may be counted for the next operation, too.  Whoever asks
  // has one operation in the line at a time.
  Ticket Run(Operation operation, Done done,
             int most_deaths = std::numeric_limits<int>::max());
  // `done` says CANCELLED as soon as no process has it: perhaps at once.
  void Abandon(Ticket ticket);
  // `done` is not called any more.
  void Forget(Ticket ticket);

  // The files worker's.
  void OnWorkerUp();

 private:
  struct Entry {
    Ticket ticket{};
    Operation operation;
    Done done;
    int most_deaths = 0;
    int deaths = 0;
    bool abandoned = false;
  };

  void OnReply(WorkerId worker, const wire::Message& reply) override;
  void OnLost(WorkerId worker, uint64_t attempt,
              const std::string& why) override;
  void SendNext();
  void EndFirst(const absl::Status& status);

  WorkerPool& pool_;
  std::deque<Entry> line_;
  bool sent_ = false;  // the first is with the worker
  uint64_t last_ticket_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_FILES_LINE_H_
