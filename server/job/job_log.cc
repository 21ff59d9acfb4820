#include "server/job/job_log.h"

#include <atomic>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace roundhouse {

// Logs with lines that the disk has not taken, by directory.  One piece of work
// has it at a time, but for any().
class JobLog::Unwritten {
 public:
  bool any() const { return any_; }

  // The files with what was kept, or opened now.
  Opened TakeOrOpen(const std::string& directory) {
    const auto found = logs_.find(directory);
    if (found == logs_.end()) return JobFiles::Open(directory);
    Opened files = std::move(found->second);
    logs_.erase(found);
    any_ = !logs_.empty();
    return files;
  }

  // Keeps what the disk has not taken; closes the files else.
  void Keep(const std::string& directory, std::unique_ptr<JobFiles> files) {
    if (!files->log_waits()) return;
    if (logs_.size() >= kMaxUnwrittenLogs) {
      RH_LOG(kError) << directory << "/log: a line is lost: the disk is full, "
                     << "and lines of " << kMaxUnwrittenLogs
                     << " logs wait for it";
      return;
    }
    logs_[directory] = std::move(files);
    any_ = true;
  }

  void WriteAgain() {
    std::erase_if(logs_, [](const auto& log) {
      log.second->WriteLogAgain();
      return !log.second->log_waits();
    });
    any_ = !logs_.empty();
  }

 private:
  std::map<std::string, std::unique_ptr<JobFiles>> logs_;
  std::atomic<bool> any_{false};
};

JobLog::JobLog(EventLoop& loop)
    : unwritten_(std::make_shared<Unwritten>()), line_(loop) {}

JobLog::~JobLog() = default;

void JobLog::Say(const std::string& directory, const std::string& text,
                 std::function<void()> then) {
  line_.Run<absl::Status>(
      [unwritten = unwritten_, directory, text]() -> absl::Status {
        ASSIGN_OR_RETURN(auto files, unwritten->TakeOrOpen(directory));
        files->Log(text);
        unwritten->Keep(directory, std::move(files));
        return absl::OkStatus();
      },
      [then = std::move(then)](const absl::Status&) { then(); });
}

void JobLog::Open(const std::string& directory,
                  std::function<void(Opened)> then) {
  line_.Run<Opened>([unwritten = unwritten_,
                     directory] { return unwritten->TakeOrOpen(directory); },
                    std::move(then));
}

void JobLog::TryAgain() {
  if (!unwritten_->any() || std::exchange(trying_, true)) return;
  line_.Run<absl::Status>(
      [unwritten = unwritten_] {
        unwritten->WriteAgain();
        return absl::OkStatus();
      },
      [this](const absl::Status&) { trying_ = false; });
}

}  // namespace roundhouse
