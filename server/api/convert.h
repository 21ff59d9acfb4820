// Between the wire and the inside: the sole validator of what comes in, and the
// resources that go out.
//
// Pure functions; thread-safe.  Errors are kInvalidArgument with the field.
#ifndef ROUNDHOUSE_SERVER_API_CONVERT_H_
#define ROUNDHOUSE_SERVER_API_CONVERT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/system.pb.h"
#include "server/api/job_engine.h"
#include "server/store/store_records.h"

namespace roundhouse {

inline constexpr int kDefaultPageSize = 50;
inline constexpr int kMaxPageSize = 500;
inline constexpr size_t kMaxRequestIdBytes = 64;

absl::StatusOr<SubmitRequest> FromProto(
    const v1::CreateFineTuningJobRequest& request);

absl::StatusOr<PriorityChange> FromProto(
    const v1::UpdateFineTuningJobRequest& request);

struct ListQuery {
  std::vector<JobState> states;
  std::optional<int64_t> before;
  int limit = kDefaultPageSize;
};
absl::StatusOr<ListQuery> FromProto(
    const v1::ListFineTuningJobsRequest& request);

struct EventQuery {
  int64_t after = 0;
  int limit = kDefaultPageSize;
};
absl::StatusOr<EventQuery> FromProto(
    const v1::ListFineTuningJobEventsRequest& request);

struct WatchQuery {
  int64_t from_revision = 0;
  bool until_final = false;
};
absl::StatusOr<WatchQuery> FromProto(
    const v1::WatchFineTuningJobsRequest& request);

// What a request asks for, bounded; errors name its page_size or page_token.
absl::StatusOr<int> PageSize(int32_t asked);
absl::StatusOr<std::optional<int64_t>> PagePosition(const std::string& token);
// Opaque to callers; the position after which the next page begins.
std::string PageToken(int64_t position);

// Without histories; the record's text and resolved spec as they are.
v1::FineTuningJob ToProto(const JobRecord& job);
// What is left of it for those without a role in its project.
v1::FineTuningJob Outline(v1::FineTuningJob job);
v1::FineTuningJobEvent ToProto(const JobEvent& event);
v1::JobNeeds ToProto(const JobNeeds& needs);
v1::ExpertLoad ToProto(const ExpertLoadSummary& load);
// `job`: the full name of the one that the device runs; "": none.
v1::Device ToProto(const DeviceInfo& device, const std::string& job);
// The nearest valid Timestamp: of years 1 to 9999, with nanoseconds that are
// not negative.
google::protobuf::Timestamp ToProto(absl::Time time);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_CONVERT_H_
