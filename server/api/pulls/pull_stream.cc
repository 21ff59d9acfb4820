#include "server/api/pulls/pull_stream.h"

#include <utility>

#include "base/status.h"
#include "base/visible_text.h"
#include "server/api/upload_service.h"
#include "server/calls/begin_stream.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

v1::PullState ToProto(PullPhase phase) {
  switch (phase) {
    case PullPhase::kAsking:
      return v1::PULL_STATE_ASKING;
    case PullPhase::kFetching:
      return v1::PULL_STATE_FETCHING;
    case PullPhase::kChecking:
      break;
  }
  return v1::PULL_STATE_CHECKING;
}

void Put(const PullProgress& progress, v1::PullModelResponse* out) {
  out->set_state(ToProto(progress.phase));
  out->set_done_bytes(static_cast<int64_t>(progress.done_bytes));
  out->set_total_bytes(static_cast<int64_t>(progress.total_bytes));
  out->set_file(static_cast<int32_t>(progress.file));
  out->set_file_count(static_cast<int32_t>(progress.file_count));
  out->set_file_name(ValidUtf8(progress.file_name));
  out->set_trouble(ValidUtf8(progress.trouble));
}

void Put(const PulledModel& model, v1::PullModelResponse* out) {
  out->set_state(v1::PULL_STATE_FINISHED);
  *out->mutable_upload() = ToProto(model.record);
  out->set_commit(model.commit);
  for (const std::string& name : model.left_out) {
    out->add_left_out(ValidUtf8(name));
  }
  out->set_left_out_count(static_cast<int64_t>(model.left_out_count));
}

}  // namespace

absl::StatusOr<PullWish> FromProto(const v1::PullModelRequest& request,
                                   const Entered& entered,
                                   const LimitCheck* limits) {
  const auto model = HubCache::ParseName(request.model());
  if (!model.has_value()) {
    return FieldError(FieldReason::kInvalidValue, "model",
                      "want ORG/NAME, or ORG/NAME@REVISION with a commit, "
                      "branch or tag, as the hub has it");
  }
  const Caller& caller = entered.caller;
  return PullWish{
      .model = *model,
      .name = request.name(),
      .project = entered.project,
      .owner = caller.owner(),
      .reads =
          [caller](const std::string& project) {
            return caller.RoleIn(project) >= Role::kMember;
          },
      .room =
          [caller, limits](const NewUpload& upload, uint64_t bytes) {
            return CheckLimits(*limits, caller, upload, bytes);
          }};
}

PullStream::PullStream(StreamPump* pump, grpc::CallbackServerContext* context,
                       std::shared_ptr<PullTask> task)
    : PumpedWriter(pump, context), task_(std::move(task)) {}

PullStream::~PullStream() { task_->Cancel(); }

absl::StatusOr<NextMessage> PullStream::Next(absl::Time now,
                                             v1::PullModelResponse* out) {
  if (ended_) return NextMessage::kEnd;
  // Before the progress, which is final then.
  const auto result = task_->result();
  if (result.has_value()) RETURN_IF_ERROR(result->status());
  const PullProgress progress = task_->progress();
  const bool new_to_say = !begun_ || (progress != sent_ && now >= next_);
  if (!result.has_value() && !new_to_say) return NextMessage::kNothing;
  begun_ = true;
  sent_ = progress;
  next_ = now + kPullProgressInterval;
  Put(progress, out);
  if (result.has_value()) {
    Put(**result, out);
    ended_ = true;
  }
  return NextMessage::kSend;
}

grpc::ServerWriteReactor<v1::PullModelResponse>* BeginPull(
    ModelPulls* pulls, Uploads* uploads, const CallDoor& door,
    grpc::CallbackServerContext* context, const v1::PullModelRequest& request) {
  using Response = v1::PullModelResponse;
  return BeginStream<Response>(
      door, context, request, StreamKind::kPull,
      [&](const Entered& entered) -> MadeStream<Response> {
        RETURN_IF_ERROR(uploads->UseAccounts(door.gate->generation()));
        ASSIGN_OR_RETURN(PullWish wish,
                         FromProto(request, entered, door.limits));
        ASSIGN_OR_RETURN(std::shared_ptr<PullTask> task,
                         pulls->Begin(std::move(wish)));
        return std::make_shared<PullStream>(door.pump, context,
                                            std::move(task));
      });
}

}  // namespace roundhouse
