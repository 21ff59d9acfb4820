#include "scheduler/simulate/checker.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/simulate/compute_check.h"
#include "scheduler/simulate/steps_check.h"
#include "scheduler/simulate/transfer_check.h"

namespace roundhouse {
namespace {

// A fixed time from device to device, nothing on the same one.
class Hop : public Delivery {
 public:
  explicit Hop(int64_t hop_ns) : hop_ns_(hop_ns) {}

  absl::StatusOr<int64_t> Arrival(const Request& request) const override {
    if (request.producer == nullptr) return 0;
    const bool same = request.producer->resource == request.consumer->resource;
    return request.producer->end_ns + (same ? 0 : hop_ns_);
  }

 private:
  const int64_t hop_ns_;
};

absl::Status CheckComputeOnly(const Schedule& schedule) {
  for (const Interval& interval : schedule.intervals) {
    if (!IsCompute(interval.kind)) {
      return Violation(interval, "the published rules have no transfers");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPublishedSchedule(const Schedule& schedule,
                                    const ModelCosts& costs,
                                    const CheckOptions& options) {
  ComputeCheck check(schedule, costs, options);
  RETURN_IF_ERROR(CheckComputeOnly(schedule));
  RETURN_IF_ERROR(check.CheckCoverage());
  RETURN_IF_ERROR(check.CheckOverlap());
  return check.CheckDependencies(Hop(costs.hop_ns));
}

absl::Status CheckStepSchedule(const Schedule& schedule,
                               const ModelCosts& costs,
                               const CheckOptions& options,
                               Contributions contributions) {
  ComputeCheck compute(schedule, costs, options);
  RETURN_IF_ERROR(compute.CheckCoverage());
  RETURN_IF_ERROR(compute.CheckOverlap());
  const LinkDelivery delivery(schedule, costs);
  RETURN_IF_ERROR(compute.CheckDependencies(delivery));
  const TransferCheck transfers(schedule, costs, options, contributions);
  RETURN_IF_ERROR(transfers.CheckRates());
  RETURN_IF_ERROR(transfers.CheckWeights());
  RETURN_IF_ERROR(transfers.CheckGradients());
  RETURN_IF_ERROR(transfers.CheckEmbeddingGradients());
  return transfers.CheckMemory();
}

absl::Status CheckJobsSchedule(const Schedule& schedule,
                               const std::vector<JobCheck>& jobs) {
  for (size_t j = 0; j < jobs.size(); ++j) {
    Schedule own;
    own.device_count = schedule.device_count;
    for (const Interval& interval : schedule.intervals) {
      if (interval.job == static_cast<int>(j))
        own.intervals.push_back(interval);
    }
    const absl::Status status =
        CheckStepsSchedule(own, *jobs[j].costs, jobs[j].options);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("job ", j, ": ", status.message()));
    }
  }
  CheckOptions options;
  options.machine = jobs.at(0).options.machine;
  const ModelCosts& costs = *jobs[0].costs;
  RETURN_IF_ERROR(ComputeCheck(schedule, costs, options).CheckOverlap());
  return TransferCheck(schedule, costs, options, Contributions::kModelDtype)
      .CheckRates();
}

absl::Status CheckStepsSchedule(const Schedule& schedule,
                                const ModelCosts& costs,
                                const StepsCheckOptions& options) {
  StepsCheck check(schedule, costs, options);
  RETURN_IF_ERROR(check.Split());
  RETURN_IF_ERROR(check.CheckRounds());
  RETURN_IF_ERROR(check.CheckUpdates());
  RETURN_IF_ERROR(check.CheckWeightVersions());
  RETURN_IF_ERROR(check.CheckSums());
  return check.CheckRows();
}

}  // namespace roundhouse
