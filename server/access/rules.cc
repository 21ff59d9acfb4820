#include "server/access/rules.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "google/protobuf/descriptor.h"
#include "proto/roundhouse/v1/account.pb.h"
#include "proto/roundhouse/v1/checkpoint.pb.h"
#include "proto/roundhouse/v1/dataset.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/model.pb.h"
#include "proto/roundhouse/v1/plan.pb.h"
#include "proto/roundhouse/v1/system.pb.h"
#include "proto/roundhouse/v1/upload.pb.h"

namespace roundhouse {
namespace {

constexpr Rule kRules[] = {
    {v1::WhoAmIRequest::descriptor, Role::kNone, Subject::kServer,
     Effect::kLooks, ""},
    {v1::ListUsersRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kLooks, ""},
    {v1::SetUserRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "user"},
    {v1::RemoveUserRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "user"},
    {v1::ListProjectsRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::SetLimitRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "subject"},
    {v1::RemoveLimitRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "subject"},
    {v1::ListLimitsRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::GetUsageRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::ListAuditRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kLooks, ""},
    {v1::AddProjectRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "project"},
    {v1::RemoveProjectRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "project"},
    {v1::ListTokensRequest::descriptor, Role::kNone, Subject::kServer,
     Effect::kLooks, ""},
    {v1::CreateTokenRequest::descriptor, Role::kNone, Subject::kServer,
     Effect::kActs, "name"},
    {v1::RevokeTokenRequest::descriptor, Role::kNone, Subject::kServer,
     Effect::kActsAlike, "token"},

    {v1::ExportCheckpointRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "source"},
    {v1::ListOutputFilesRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActsAlike, "source"},
    {v1::ReadOutputFileRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, "source"},
    {v1::HashOutputFileRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, "source"},
    // The caller's own jobs; everybody's, for admins: the handler looks at it.
    {v1::ListOldCheckpointsRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, ""},
    {v1::DeleteCheckpointsRequest::descriptor, Role::kMember, Subject::kOwnJob,
     Effect::kActs, "name"},

    {v1::PreviewDatasetRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActsAlike, ""},
    {v1::ValidateDatasetRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActsAlike, ""},

    {v1::CreateFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kProject, Effect::kActs, ""},
    {v1::ListJobFilePathsRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, ""},
    {v1::GetFineTuningJobRequest::descriptor, Role::kViewer,
     Subject::kJobOutline, Effect::kLooks, "name"},
    {v1::ListFineTuningJobsRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::WatchFineTuningJobsRequest::descriptor, Role::kViewer,
     Subject::kJobsOutline, Effect::kLooks, "name"},
    {v1::CancelFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kOwnJob, Effect::kActs, "name"},
    {v1::PauseFineTuningJobRequest::descriptor, Role::kMember, Subject::kOwnJob,
     Effect::kActs, "name"},
    {v1::ResumeFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kOwnJob, Effect::kActs, "name"},
    {v1::FinishFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kOwnJob, Effect::kActs, "name"},
    {v1::ExplainFineTuningJobRequest::descriptor, Role::kViewer, Subject::kJob,
     Effect::kLooks, "name"},
    {v1::UpdateFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kOwnJob, Effect::kActs, "name"},
    {v1::DeleteFineTuningJobRequest::descriptor, Role::kMember,
     Subject::kOwnJob, Effect::kActs, "name"},
    {v1::ListFineTuningJobEventsRequest::descriptor, Role::kViewer,
     Subject::kJob, Effect::kLooks, "name"},
    {v1::StreamFineTuningJobLogsRequest::descriptor, Role::kViewer,
     Subject::kJob, Effect::kLooks, "name"},
    {v1::StreamFineTuningJobMetricsRequest::descriptor, Role::kViewer,
     Subject::kJob, Effect::kLooks, "name"},
    {v1::TraceFineTuningJobRequest::descriptor, Role::kMember, Subject::kJob,
     Effect::kActs, "name"},

    {v1::ListModelsRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::GetModelRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, "name"},
    {v1::SampleRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "model"},
    {v1::PullModelRequest::descriptor, Role::kMember, Subject::kProject,
     Effect::kActs, "model"},

    {v1::PlanTrainingRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, "model"},

    // Whose an upload is, its handlers look at.
    {v1::CreateUploadRequest::descriptor, Role::kMember, Subject::kProject,
     Effect::kActs, ""},
    {v1::UploadChunkRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, "id"},
    {v1::FinishUploadRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "id"},
    {v1::GetUploadRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, "id"},
    {v1::ListUploadsRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::DeleteUploadRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "id"},

    {v1::GetServerRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    {v1::ListDevicesRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
    // Whose a loan is, and who may have one, the handlers look at.
    {v1::LendDeviceRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "name"},
    {v1::ReturnDeviceRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kActs, "name"},
    {v1::FenceDeviceRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "name"},
    {v1::UnfenceDeviceRequest::descriptor, Role::kAdmin, Subject::kServer,
     Effect::kActs, "name"},
    {v1::DiagnoseRequest::descriptor, Role::kMember, Subject::kServer,
     Effect::kLooks, ""},
    {v1::GetDiskUsageRequest::descriptor, Role::kViewer, Subject::kServer,
     Effect::kLooks, ""},
};

// By the request's type.
std::map<const google::protobuf::Descriptor*, const Rule*> RulesByRequest() {
  std::map<const google::protobuf::Descriptor*, const Rule*> rules;
  for (const Rule& rule : kRules) {
    const bool fresh = rules.emplace(rule.request(), &rule).second;
    ROUNDHOUSE_CHECK(fresh) << rule.request()->full_name() << " has two rules";
  }
  return rules;
}

}  // namespace

absl::Span<const Rule> Rules() { return kRules; }

const Rule* RuleOf(const google::protobuf::Message& request) {
  static const auto& rules = *new auto(RulesByRequest());
  const auto found = rules.find(request.GetDescriptor());
  return found == rules.end() ? nullptr : found->second;
}

std::string TextField(const google::protobuf::Message& message,
                      const std::string& field) {
  using google::protobuf::FieldDescriptor;
  const FieldDescriptor* const found =
      message.GetDescriptor()->FindFieldByName(field);
  if (found == nullptr || found->is_repeated() ||
      found->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    return "";
  }
  return message.GetReflection()->GetString(message, found);
}

std::string RpcOf(const google::protobuf::Message& request) {
  const google::protobuf::Descriptor* const type = request.GetDescriptor();
  for (int s = 0; s < type->file()->service_count(); ++s) {
    const auto* const service = type->file()->service(s);
    for (int m = 0; m < service->method_count(); ++m) {
      if (service->method(m)->input_type() != type) continue;
      return absl::StrCat(service->name(), "/", service->method(m)->name());
    }
  }
  return type->name();
}

std::string ResourceOf(const Rule& rule,
                       const google::protobuf::Message& request) {
  return rule.resource[0] == '\0' ? "" : TextField(request, rule.resource);
}

}  // namespace roundhouse
