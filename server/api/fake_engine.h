// A JobEngine over a real job store: it validates the job file's text, stores
// the job and moves it by commands alone.  For tests of the API.
#ifndef ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_
#define ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_

#include <atomic>
#include <string>
#include <vector>

#include "server/api/engine.h"
#include "server/jobs/store.h"

namespace roundhouse {

// Thread-safe.
class FakeEngine final : public JobEngine {
 public:
  explicit FakeEngine(JobStore* store) : store_(store) {}

  absl::StatusOr<JobRecord> Submit(const SubmitRequest& request) override;
  absl::StatusOr<JobRecord> Cancel(const std::string& id) override;
  absl::StatusOr<JobRecord> Pause(const std::string& id) override;
  absl::StatusOr<JobRecord> Resume(const std::string& id) override;
  std::vector<DeviceInfo> Devices() override;
  ServerInfo Server() override;

  int submits() const { return submits_; }

 private:
  JobStore* const store_;
  std::atomic<int> submits_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_FAKE_ENGINE_H_
