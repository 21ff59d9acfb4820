#include "base/files/open_limit.h"

#include <pthread.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files/descriptor.h"
#include "base/log.h"
#include "base/mutex.h"

namespace roundhouse {
namespace {

// Threads that wait for a call are kept; more end.
constexpr int kKeptThreads = 4;
// As lists of a process's threads show them.
constexpr char kThreadName[] = "opener";

std::atomic<OpenLimit*> process_limit{nullptr};

}  // namespace

std::string OpenErrorText(int error) {
  if (error != kOpenHangs) return std::strerror(error);
  return absl::StrCat("its file system did not answer within ",
                      absl::ToInt64Seconds(kOpenLimit), " s");
}

bool IsOpenHang(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         absl::StrContains(status.message(), OpenErrorText(kOpenHangs));
}

struct OpenLimit::Shared {
  struct Task {
    std::string path;
    std::function<void()> call;
    bool begun = false;
    bool done = false;
    bool given_up = false;
  };

  explicit Shared(const Limits& of) : limits(of) {}

  // A thread, until it is one of more than are kept.
  void Work() ABSL_LOCKS_EXCLUDED(mutex);
  // Whether a thread will take up what waits.
  bool HasThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Duration Wait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return hurrying ? limits.wait_at_end : limits.wait;
  }

  const Limits limits;
  mutable Mutex mutex;
  CondVar work;     // something waits
  CondVar changed;  // something is done, or hurrying
  std::deque<std::shared_ptr<Task>> waiting ABSL_GUARDED_BY(mutex);
  size_t idle ABSL_GUARDED_BY(mutex) = 0;  // threads
  // A path as often as it was asked for at once.
  std::multiset<std::string> hanging ABSL_GUARDED_BY(mutex);
  bool hurrying ABSL_GUARDED_BY(mutex) = false;
};

void OpenLimit::Shared::Work() {
  pthread_setname_np(pthread_self(), kThreadName);
  MutexLock lock(mutex);
  while (true) {
    while (waiting.empty()) {
      if (idle >= kKeptThreads) return;
      ++idle;
      work.Wait(mutex);
      --idle;
    }
    const std::shared_ptr<Task> task = std::move(waiting.front());
    waiting.pop_front();
    task->begun = true;
    mutex.Unlock();
    task->call();
    mutex.Lock();
    task->done = true;
    if (task->given_up) {
      hanging.erase(hanging.find(task->path));
      // What it made goes, which may close a file.
      mutex.Unlock();
      task->call = nullptr;
      mutex.Lock();
    }
    changed.NotifyAll();
  }
}

bool OpenLimit::Shared::HasThread() { return idle >= waiting.size(); }

OpenLimit::OpenLimit(const Limits& limits)
    : shared_(std::make_shared<Shared>(limits)) {}

OpenLimit::~OpenLimit() = default;

bool OpenLimit::Call(const std::string& path, std::function<void()> call) {
  Shared& shared = *shared_;
  const auto task = std::make_shared<Shared::Task>();
  task->path = path;
  task->call = std::move(call);
  const int64_t begun_ns = MonotonicNs();
  MutexLock lock(shared.mutex);
  if (shared.hanging.contains(path) ||
      static_cast<int>(shared.hanging.size()) >= shared.limits.most_hanging) {
    errno = kOpenHangs;
    return false;
  }
  shared.waiting.push_back(task);
  if (!shared.HasThread()) {
    try {
      std::thread([kept = shared_] { kept->Work(); }).detach();
    } catch (const std::system_error&) {
      std::erase(shared.waiting, task);
      errno = ENOMEM;
      return false;
    }
  }
  shared.work.NotifyOne();
  while (!task->done) {
    const absl::Duration left =
        shared.Wait() - absl::Nanoseconds(MonotonicNs() - begun_ns);
    if (left <= absl::ZeroDuration()) break;
    shared.changed.WaitUntil(shared.mutex, CondVar::DeadlineIn(left));
  }
  if (task->done) return true;
  errno = kOpenHangs;
  if (!task->begun) {
    std::erase(shared.waiting, task);
    return false;
  }
  task->given_up = true;
  shared.hanging.insert(path);
  RH_LOG(kError) << path << ": " << OpenErrorText(kOpenHangs) << "; "
                 << shared.hanging.size()
                 << " such opens wait in the kernel; with "
                 << shared.limits.most_hanging << " no file is opened";
  errno = kOpenHangs;
  return false;
}

int OpenLimit::Open(const std::string& path, std::function<int()> open) {
  struct Result {
    Descriptor opened;
    int error = 0;
  };
  const auto result = std::make_shared<Result>();
  const bool done = Call(path, [result, open = std::move(open)] {
    result->opened = Descriptor(open());
    result->error = errno;
  });
  if (!done) return -1;
  errno = result->error;
  return result->opened.Release();
}

void OpenLimit::Hurry() {
  const MutexLock lock(shared_->mutex);
  shared_->hurrying = true;
  shared_->changed.NotifyAll();
}

int OpenLimit::hanging() const {
  const MutexLock lock(shared_->mutex);
  return static_cast<int>(shared_->hanging.size());
}

bool OpensAreLimited() { return process_limit != nullptr; }

void LimitOpens() {
  // Never destroyed: threads that hang outlive all else.
  static OpenLimit* const limit = new OpenLimit({});
  process_limit = limit;
}

void HurryOpens() {
  if (OpenLimit* const limit = process_limit) limit->Hurry();
}

int OpenWithinLimit(const std::string& path, std::function<int()> open) {
  OpenLimit* const limit = process_limit;
  return limit == nullptr ? open() : limit->Open(path, std::move(open));
}

bool CallWithinLimit(const std::string& path, std::function<void()> call) {
  OpenLimit* const limit = process_limit;
  if (limit != nullptr) return limit->Call(path, std::move(call));
  call();
  return true;
}

std::string RealPathWithinLimit(const std::string& path) {
  struct Result {
    std::string name;
    int error = 0;
  };
  const auto result = std::make_shared<Result>();
  const bool done = CallWithinLimit(path, [path, result] {
    char* const real = realpath(path.c_str(), nullptr);
    result->error = real == nullptr ? errno : 0;
    if (real != nullptr) result->name = real;
    free(real);
  });
  if (!done) return "";
  errno = result->error;
  return result->name;
}

}  // namespace roundhouse
