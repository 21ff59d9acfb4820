#include "server/api/inspection_call.h"

#include <atomic>
#include <utility>

#include "base/status.h"
#include "server/calls/errors.h"
#include "server/calls/unary_call.h"

namespace roundhouse {
namespace {

class InspectionCall final : public grpc::ServerUnaryReactor {
 public:
  InspectionCall(DatasetInspector* inspector, const CallDoor& door,
                 grpc::CallbackServerContext* context,
                 const google::protobuf::Message* request,
                 MakeQuestion question, FillAnswer fill)
      : inspector_(inspector),
        door_(door),
        origin_(OriginOf(door, *context)),
        request_(request),
        question_(std::move(question)),
        fill_(std::move(fill)),
        id_(inspector->NewId()) {}

  void Begin() {
    if (!origin_.caller.ok()) return Answer(origin_.caller.status());
    Work([this] { Ask(); });
  }

  void OnCancel() override {
    cancelled_ = true;
    inspector_->Cancel(id_);
  }
  void OnDone() override { delete this; }

 private:
  void Work(std::function<void()> work) {
    const absl::Status taken = door_.queue->Run(origin_.share, std::move(work));
    if (!taken.ok()) Answer(taken);
  }

  absl::StatusOr<DatasetQuestion> Question() const {
    ASSIGN_OR_RETURN(const Entered entered,
                     EnterCall(door_, origin_, *request_));
    ASSIGN_OR_RETURN(DatasetQuestion question, question_(entered));
    question.caller = entered.caller;
    return inspector_->Check(std::move(question));
  }

  void Ask() {
    const auto checked = Guarded([this] { return Question(); });
    if (!checked.ok()) return Answer(checked.status());
    inspector_->Start(
        id_, *checked, [this] { return cancelled_.load(); },
        // On the loop's thread, which waits for no disk.
        [this](absl::StatusOr<std::string> text) {
          if (!text.ok()) return Answer(text.status());
          Work([this, text = *std::move(text)] {
            Answer(Guarded([&] { return fill_(text); }));
          });
        });
  }

  void Answer(const absl::Status& status) {
    AuditCall(door_, origin_.asker, *request_, status, nullptr);
    Finish(ToGrpcStatus(status));
  }

  DatasetInspector* const inspector_;
  const CallDoor door_;
  const CallOrigin origin_;
  const google::protobuf::Message* const request_;
  const MakeQuestion question_;
  const FillAnswer fill_;
  const DatasetInspector::InspectionId id_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* RunInspection(
    DatasetInspector* inspector, const CallDoor& door,
    grpc::CallbackServerContext* context,
    const google::protobuf::Message* request, MakeQuestion question,
    FillAnswer fill) {
  auto* call = new InspectionCall(inspector, door, context, request,
                                  std::move(question), std::move(fill));
  call->Begin();
  return call;
}

}  // namespace roundhouse
