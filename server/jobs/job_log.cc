#include "server/jobs/job_log.h"

#include <utility>

#include "base/status.h"

namespace roundhouse {

void JobLog::Say(const std::string& directory, const std::string& text,
                 std::function<void()> then) {
  line_.Run<absl::Status>(
      [directory, text]() -> absl::Status {
        ASSIGN_OR_RETURN(const auto files, JobFiles::Open(directory));
        files->Log(text);
        return absl::OkStatus();
      },
      [then = std::move(then)](const absl::Status&) { then(); });
}

void JobLog::Open(const std::string& directory,
                  std::function<void(Opened)> then) {
  line_.Run<Opened>([directory] { return JobFiles::Open(directory); },
                    std::move(then));
}

}  // namespace roundhouse
