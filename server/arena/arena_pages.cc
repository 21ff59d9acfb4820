#include "server/arena/arena_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

ArenaPages::ArenaPages(wire::Arena& arena, const ArenaPagesOptions& options)
    : arena_(arena), options_(options) {
  if (keeps()) arena_.header().piece_bytes = kPieceBytes;
  if (options_.loop != nullptr) thread_ = std::thread([this] { Run(); });
}

ArenaPages::~ArenaPages() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

bool ArenaPages::InBackground(uint64_t bytes) const {
  return options_.loop != nullptr && bytes >= options_.background_bytes;
}

absl::Status ArenaPages::AddNow(uint64_t begin, uint64_t end) {
  if (options_.huge) {
    // What it could not do is tried, and its error told, below.
    madvise(arena_.At<std::byte>(begin, end - begin), end - begin,
            MADV_POPULATE_WRITE);
  }
  if (fallocate(arena_.fd(), 0, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin)) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("host memory: the system could not reserve ", end - begin,
                   " bytes: ", std::strerror(errno)));
}

void ArenaPages::CleanNow(uint64_t begin, uint64_t end) {
  if (keeps()) {
    std::memset(arena_.At<std::byte>(begin, end - begin), 0, end - begin);
    return;
  }
  ROUNDHOUSE_CHECK(fallocate(arena_.fd(),
                             FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             static_cast<off_t>(begin),
                             static_cast<off_t>(end - begin)) == 0)
      << std::strerror(errno);
}

// --- on the loop ---

void ArenaPages::Queue(Work work, Task task) {
  {
    MutexLock lock(mutex_);
    TasksOf(work).push_back(std::move(task));
  }
  wake_.NotifyAll();
}

void ArenaPages::QueueAdd(uint64_t offset, uint64_t end) {
  last_add_ = next_id_++;
  Queue(Work::kAdd,
        {.offset = offset,
         .begin = offset,
         .end = end,
         .done = [this, id = last_add_](const absl::Status& status) {
           OnAdded(id, status);
         }});
}

// All pages before `end`, by whole pieces, and for good.
absl::Status ArenaPages::Grow(uint64_t end) {
  if (end <= growth_end_) return absl::OkStatus();
  growth_end_ = std::min((end + kPieceBytes - 1) / kPieceBytes * kPieceBytes,
                         arena_.size_bytes());
  if (options_.loop != nullptr) {
    QueueAdd(0, growth_end_);
    return absl::OkStatus();
  }
  const absl::Status status = AddNow(kept_bytes(), growth_end_);
  status.ok() ? Keep(growth_end_) : NoteGrowthFailed();
  return status;
}

absl::Status ArenaPages::Add(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  if (keeps()) {
    RETURN_IF_ERROR(Grow(end));
    if (end <= kept_bytes() || InBackground(bytes)) return absl::OkStatus();
  }
  if (!InBackground(bytes)) return AddNow(offset, end);
  QueueAdd(offset, end);
  return absl::OkStatus();
}

bool ArenaPages::Clean(uint64_t offset, uint64_t bytes,
                       std::function<void()> done) {
  if (!InBackground(bytes)) {
    CleanNow(offset, offset + bytes);
    return true;
  }
  {
    MutexLock lock(mutex_);
    for (Task& task : adds_) task.dropped |= task.offset == offset;
  }
  Queue(Work::kClean,
        {.offset = offset,
         .begin = offset,
         .end = offset + bytes,
         .done = [done = std::move(done)](const absl::Status&) { done(); }});
  return false;
}

ArenaPages::Waiter ArenaPages::WhenReady(
    std::function<void(absl::Status)> done) {
  if (last_added_ == last_add_) {
    done(absl::OkStatus());
    return 0;
  }
  const Waiter id = next_id_++;
  waiting_.push_back({id, last_add_, absl::OkStatus(), std::move(done)});
  return id;
}

void ArenaPages::Forget(Waiter waiter) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [waiter](const Waiting& waiting) {
                                  return waiting.id == waiter;
                                }),
                 waiting_.end());
}

// Tasks end in the order of their numbers.
void ArenaPages::OnAdded(uint64_t task, const absl::Status& status) {
  last_added_ = task;
  if (!status.ok() && keeps()) NoteGrowthFailed();
  for (Waiting& waiting : waiting_) waiting.status.Update(status);
  while (!waiting_.empty() && waiting_.front().last_task <= task) {
    const Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    first.done(first.status);
  }
}

// --- the thread ---

void ArenaPages::Post(std::function<void()> closure) {
  while (absl::IsResourceExhausted(options_.loop->Post(closure))) {
    absl::SleepFor(absl::Milliseconds(1));
  }
}

void ArenaPages::DoPiece(Work work) {
  std::deque<Task>& tasks = TasksOf(work);
  Task& task = tasks.front();  // stays: others are added behind it
  const bool adding = work == Work::kAdd;
  const bool growing = adding && keeps();
  if (growing) task.begin = kept_bytes();
  absl::Status status;
  if (!task.dropped && task.begin < task.end) {
    const uint64_t begin = task.begin;
    const uint64_t end = std::min(task.end, begin + kPieceBytes);
    mutex_.Unlock();
    if (adding) {
      status = AddNow(begin, end);
    } else {
      CleanNow(begin, end);
    }
    if (growing && status.ok()) Keep(end);
    mutex_.Lock();
    task.begin = end;
    if (status.ok() && !task.dropped && end < task.end) return;
  }
  auto done = std::move(task.done);
  tasks.pop_front();
  mutex_.Unlock();
  // Its text: a status that two threads hold would be freed by either.
  Post([done = std::move(done), error = std::string(status.message())] {
    done(error.empty() ? absl::OkStatus()
                       : absl::ResourceExhaustedError(error));
  });
  mutex_.Lock();
}

void ArenaPages::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && adds_.empty() && cleans_.empty()) wake_.Wait(mutex_);
    if (stopping_) return;
    DoPiece(adds_.empty() ? Work::kClean : Work::kAdd);
  }
}

}  // namespace roundhouse
