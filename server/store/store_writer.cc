#include "server/store/store_writer.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

StoreWriter::StoreWriter(std::unique_ptr<Database> db,
                         std::function<void(absl::Duration)> committed)
    : db_(std::move(db)), committed_(std::move(committed)) {
  thread_ = std::thread([this] { Loop(); });
}

StoreWriter::~StoreWriter() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

absl::Status StoreWriter::Run(const Write& write) {
  Waiting waiting{.write = &write};
  std::unique_lock<std::mutex> lock(mutex_);
  if (stop_ || queue_.size() >= kMaxWaitingWrites) {
    return absl::UnavailableError("job store: too many writes are waiting");
  }
  queue_.push_back(&waiting);
  work_.notify_one();
  finished_.wait(lock, [&] { return waiting.done; });
  return waiting.status;
}

void StoreWriter::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const size_t count = std::min(queue_.size(), kMaxWritesPerCommit);
    const std::vector<Waiting*> group(queue_.begin(), queue_.begin() + count);
    queue_.erase(queue_.begin(), queue_.begin() + count);
    lock.unlock();
    const absl::Time begun = absl::Now();
    const absl::Status status = Commit(group);
    const absl::Duration took = absl::Now() - begun;
    lock.lock();
    for (Waiting* waiting : group) {
      if (waiting->status.ok()) waiting->status = status;
      waiting->done = true;
    }
    finished_.notify_all();
    if (!status.ok()) continue;
    lock.unlock();
    committed_(took);
    lock.lock();
  }
}

absl::Status StoreWriter::Commit(const std::vector<Waiting*>& group) {
  RETURN_IF_ERROR(db_->Execute("BEGIN IMMEDIATE"));
  absl::Status status;
  for (Waiting* waiting : group) {
    status = RunOne(waiting);
    if (!status.ok()) break;
  }
  if (status.ok()) status = db_->Execute("COMMIT");
  if (status.ok()) return status;
  const absl::Status undone = db_->Execute("ROLLBACK");
  if (!undone.ok()) {
    // A full disk rolls back by itself; then there is nothing left to undo.
    RH_LOG(kDebug) << "rollback: " << undone;
  }
  return status;
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
