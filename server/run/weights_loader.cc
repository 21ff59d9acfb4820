#include "server/run/weights_loader.h"

#include <utility>

namespace roundhouse {

void WeightsLoader::Load(Weights weights, Calls calls) {
  base_ = around_.memory.state().base();
  if (base_ == nullptr) {
    LoadTrained(weights, std::move(calls.over));
    return;
  }
  // Held: what follows may end the job at once.
  const std::shared_ptr<BaseWeights> base = base_;
  ticket_ = base->Join([this, weights = std::move(weights),
                        calls = std::move(calls)](BaseWeights::Grant grant) {
    if (grant == BaseWeights::Grant::kLoad) {
      LoadBase(weights, calls);
      return;
    }
    calls.base_is_there();
    LoadTrained(weights, calls.over);
  });
}

void WeightsLoader::LoadBase(const Weights& next, const Calls& calls) {
  const Weights frozen{
      wire::FileOpKind::kLoad,
      LoadParts(around_.model.sources, 0, around_.memory.state())};
  LoadTrained(frozen, [this, next, calls](const absl::Status& status) {
    LookAtBase(status, next, calls);
  });
}

void WeightsLoader::LookAtBase(const absl::Status& loaded, const Weights& next,
                               const Calls& calls) {
  around_.background.Run<absl::StatusOr<std::string>>(
      [&model = around_.model, dtype = around_.memory.state().options().dtype] {
        return BaseKey(model, dtype);
      },
      [this, loaded, next, calls](const absl::StatusOr<std::string>& key) {
        OnBaseLoaded(loaded, key);
        if (calls.stopped()) {
          calls.base_failed(absl::CancelledError("the job ends"));
        } else if (!loaded.ok()) {
          calls.base_failed(loaded);
        } else {
          LoadTrained(next, calls.over);
        }
      });
}

void WeightsLoader::OnBaseLoaded(const absl::Status& status,
                                 const absl::StatusOr<std::string>& key) {
  // Files that changed meanwhile may have given old and new bytes: for this job
  // as it is, as with full fine-tuning, for no other.
  if (!key.ok() || *key != around_.memory.base_key()) {
    around_.bases->Forget(*base_);
  }
  if (status.ok()) {
    base_->LoadDone();
  } else {
    base_->LoadFailed();
  }
}

void WeightsLoader::LoadTrained(const Weights& weights, Done done) {
  auto table =
      FileTable::Create(around_.memory.arena(), weights.kind, weights.parts);
  if (table.ok()) {
    around_.operation.Run(*std::move(table), std::move(done));
  } else {
    done(table.status());
  }
}

void WeightsLoader::Stop() {
  if (base_ != nullptr) base_->Leave(ticket_);
  base_.reset();
}

}  // namespace roundhouse
