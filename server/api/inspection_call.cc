#include "server/api/inspection_call.h"

#include <atomic>
#include <utility>

#include "base/status.h"
#include "server/api/errors.h"
#include "server/api/unary_call.h"
#include "server/door/peers.h"

namespace roundhouse {
namespace {

class InspectionCall final : public grpc::ServerUnaryReactor {
 public:
  InspectionCall(DatasetInspector* inspector, CallQueue* work,
                 grpc::CallbackServerContext* context, MakeQuestion question,
                 FillAnswer fill)
      : inspector_(inspector),
        work_(work),
        context_(context),
        question_(std::move(question)),
        fill_(std::move(fill)),
        id_(inspector->NewId()) {}

  void Begin() {
    Work([this] { Ask(); });
  }

  void OnCancel() override {
    cancelled_ = true;
    inspector_->Cancel(id_);
  }
  void OnDone() override { delete this; }

 private:
  void Work(std::function<void()> work) {
    const absl::Status taken = work_->Run(*context_, std::move(work));
    if (!taken.ok()) Answer(taken);
  }

  absl::StatusOr<DatasetQuestion> Question() const {
    ASSIGN_OR_RETURN(DatasetQuestion question, question_());
    ASSIGN_OR_RETURN(const uid_t uid, work_->peers().UidOf(*context_));
    question.principal = PrincipalOf(uid);
    return inspector_->Check(std::move(question));
  }

  void Ask() {
    const auto checked = Guarded([this] { return Question(); });
    if (!checked.ok()) return Answer(checked.status());
    inspector_->Start(
        id_, *checked, [this] { return cancelled_.load(); },
        [this](absl::StatusOr<std::string> text) {
          if (!text.ok()) return Answer(text.status());
          Work([this, text = *std::move(text)] {
            Answer(Guarded([&] { return fill_(text); }));
          });
        });
  }

  void Answer(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  DatasetInspector* const inspector_;
  CallQueue* const work_;
  grpc::CallbackServerContext* const context_;
  const MakeQuestion question_;
  const FillAnswer fill_;
  const DatasetInspector::InspectionId id_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* RunInspection(DatasetInspector* inspector,
                                        CallQueue* work,
                                        grpc::CallbackServerContext* context,
                                        MakeQuestion question,
                                        FillAnswer fill) {
  auto* call = new InspectionCall(inspector, work, context, std::move(question),
                                  std::move(fill));
  call->Begin();
  return call;
}

}  // namespace roundhouse
