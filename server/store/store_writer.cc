#include "server/store/store_writer.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

StoreWriter::StoreWriter(std::unique_ptr<Database> db, WriterHooks hooks)
    : db_(std::move(db)), hooks_(std::move(hooks)) {
  thread_ = std::thread([this] { Loop(); });
}

StoreWriter::~StoreWriter() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  work_.NotifyOne();
  thread_.join();
}

absl::Status StoreWriter::Run(const Write& write) {
  Waiting waiting{.write = &write};
  MutexLock lock(mutex_);
  if (stop_ || queue_.size() >= kMaxWaitingWrites) {
    return absl::UnavailableError("job store: too many writes are waiting");
  }
  queue_.push_back(&waiting);
  work_.NotifyOne();
  while (!waiting.done) finished_.Wait(mutex_);
  return waiting.status;
}

std::vector<StoreWriter::Waiting*> StoreWriter::AwaitGroup(bool* last) {
  MutexLock lock(mutex_);
  const CondVar::Deadline deadline = CondVar::DeadlineIn(
      wal_has_bytes_ ? kMaxIdleInWal : absl::InfiniteDuration());
  while (!stop_ && queue_.empty()) {
    if (!work_.WaitUntil(mutex_, deadline) && wal_has_bytes_) break;
  }
  const size_t count = std::min(queue_.size(), kMaxWritesPerCommit);
  const std::vector<Waiting*> group(queue_.begin(), queue_.begin() + count);
  queue_.erase(queue_.begin(), queue_.begin() + count);
  *last = stop_ && group.empty();
  return group;
}

void StoreWriter::Loop() {
  bool last = false;
  while (!last) {
    const std::vector<Waiting*> group = AwaitGroup(&last);
    if (!group.empty()) RunGroup(group);
    if (group.empty()) {
      Checkpoint(Database::Wal::kTruncate);
    } else if (commits_in_wal_ >= kMaxCommitsInWal) {
      Checkpoint(Database::Wal::kRestart);
    }
  }
  if (committed_ && hooks_.finished != nullptr) hooks_.finished(db_.get());
}

void StoreWriter::RunGroup(const std::vector<Waiting*>& group) {
  const absl::Time begun = WallTime();
  const absl::Status status = Commit(group);
  const absl::Duration took = WallTime() - begun;
  {
    MutexLock lock(mutex_);
    for (Waiting* waiting : group) {
      if (waiting->status.ok()) waiting->status = status;
      waiting->done = true;
    }
    finished_.NotifyAll();
  }
  if (status.ok() && hooks_.committed != nullptr) hooks_.committed(took);
}

absl::Status StoreWriter::Commit(const std::vector<Waiting*>& group) {
  RETURN_IF_ERROR(db_->Execute("BEGIN IMMEDIATE"));
  const absl::Status status = CommitAll(group);
  if (status.ok()) return status;
  // A full disk rolls back by itself; then there is nothing left to undo.
  db_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status StoreWriter::CommitAll(const std::vector<Waiting*>& group) {
  bool written = false;
  for (Waiting* waiting : group) {
    RETURN_IF_ERROR(RunOne(waiting));
    written = written || waiting->status.ok();
  }
  if (written && hooks_.before_commit != nullptr) {
    RETURN_IF_ERROR(hooks_.before_commit(db_.get()));
  }
  RETURN_IF_ERROR(db_->Execute("COMMIT"));
  if (!written) return absl::OkStatus();
  committed_ = true;
  ++commits_in_wal_;
  wal_has_bytes_ = true;
  if (hooks_.after_commit != nullptr) hooks_.after_commit();
  return absl::OkStatus();
}

// One that fails is tried again after the next commit.
void StoreWriter::Checkpoint(Database::Wal after) {
  const bool truncates = after == Database::Wal::kTruncate;
  if (!std::exchange(wal_has_bytes_, !truncates)) return;
  commits_in_wal_ = 0;
  const absl::Status done = db_->Checkpoint(after);
  if (!done.ok()) RH_LOG(kWarning) << "emptying the WAL: " << done;
}

absl::Status StoreWriter::RunOne(Waiting* waiting) {
  RETURN_IF_ERROR(db_->Execute("SAVEPOINT one"));
  waiting->status = (*waiting->write)(db_.get());
  if (!waiting->status.ok()) {
    RETURN_IF_ERROR(db_->Execute("ROLLBACK TO one"));
  }
  return db_->Execute("RELEASE one");
}

}  // namespace roundhouse
