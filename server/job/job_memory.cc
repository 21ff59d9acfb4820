#include "server/job/job_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "base/wire/words.h"
#include "server/planning/plan_costs.h"

namespace roundhouse {

absl::Status JobMemory::Allocate(int device_count) {
  const absl::Status status = TryAllocate(device_count);
  if (!absl::IsResourceExhausted(status)) return status;
  // What bases of earlier jobs take, or where they lie, may be in the way: this
  // job's own among them.
  state_.reset();
  buffers_.reset();
  if (options_.bases == nullptr || !options_.bases->DropUnused()) return status;
  return TryAllocate(device_count);
}

absl::Status JobMemory::TryAllocate(int device_count) {
  const ModelConfig& model = options_.model.config;
  const TrainedModel trained = TrainedOf(options_.spec, model);
  const HostRoom room = {device_count, arena_.limit_bytes()};
  ASSIGN_OR_RETURN(plan_,
                   InitialPlan(options_.spec, model, room, options_.device));
  std::shared_ptr<BaseWeights> base;
  if (trained.adapter.present()) {
    ASSIGN_OR_RETURN(base_key_, options_.base_key);
    ASSIGN_OR_RETURN(base,
                     options_.bases->Get(base_key_, model, trained.dtype));
  }
  ASSIGN_OR_RETURN(state_,
                   TrainingState::Create(
                       arena_, StateOptions(options_.job, options_.spec, model),
                       std::move(base)));
  int64_t longest = options_.train->counts().max_row_tokens;
  if (options_.validation != nullptr) {
    longest = std::max(longest, options_.validation->counts().max_row_tokens);
  }
  const HostNeed need = NeedOf(options_.spec, model, plan_, longest, room);
  RoundBuffersOptions buffers =
      BufferOptions(options_.spec, model, plan_, longest, device_count);
  // Shorter rows would have room for more than were admitted.
  buffers.boundary_tensors = std::min(
      need.boundary_tensors,
      NeedOf(options_.spec, model, plan_, options_.spec.max_length(), room)
          .boundary_tensors);
  ASSIGN_OR_RETURN(buffers_, RoundBuffers::Create(arena_, buffers));
  table_bytes_ = need.table_bytes;
  const uint64_t free_bytes = arena_.limit_bytes() - arena_.used_bytes();
  // Taken at loads and saves, when it must be there.
  if (free_bytes < table_bytes_ && options_.bases != nullptr) {
    options_.bases->DropUnused();
  }
  return absl::OkStatus();
}

void JobMemory::WaitForPages(std::function<void(const absl::Status&)> ready) {
  wait_ = arena_.pages().WhenReady(std::move(ready));
}

void JobMemory::Release() {
  arena_.pages().Forget(wait_);
  buffers_.reset();
  state_.reset();
}

void JobMemory::Adopt(const Plan& plan, std::unique_ptr<RoundBuffers> buffers) {
  buffers_ = std::move(buffers);
  plan_ = plan;
}

void JobMemory::RaiseVersions(uint64_t version) {
  for (size_t i = 0; i < state_->units().size(); ++i) {
    const int unit = static_cast<int>(i);
    if (!state_->trainable(unit)) continue;  // a base raises its own
    wire::Raise(arena_.arena().WordAt(state_->layout(unit).version_word_offset),
                version, arena_.arena().doorbells());
  }
}

HostUse JobMemory::use() const {
  HostUse use;
  if (!allocated()) return use;
  use.activation_bytes = buffers_->host_bytes();
  for (size_t i = 0; i < state_->units().size(); ++i) {
    const int unit = static_cast<int>(i);
    const int copies =
        state_->trainable(unit) && state_->options().stale ? 2 : 1;
    use.weight_bytes += copies * state_->Weights(unit, 0).bytes;
    const wire::UnitLayout& layout = state_->layout(unit);
    if (!state_->trainable(unit)) continue;
    const uint64_t fp32_bytes = layout.element_count * DTypeBytes(DType::kF32);
    use.optimizer_bytes += 3 * fp32_bytes;
    if (layout.grad_sum_offset != 0) use.gradient_bytes += fp32_bytes;
  }
  use.gradient_bytes += buffers_->contributions().host_bytes();
  return use;
}

JobShape JobMemory::Shape() const {
  const ModelConfig& model = options_.model.config;
  const int layers = static_cast<int>(model.layer_count) + 1;
  JobShape shape;
  shape.layer_count = layers;
  shape.unit_count = layers + 1;
  shape.tied_head = model.tie_word_embeddings;
  for (int unit = 0; state_->base() != nullptr && unit <= layers; ++unit) {
    shape.trainable.push_back(unit > 0 && unit < layers);
  }
  shape.stale = state_->options().stale;
  shape.one_pass = state_->options().one_pass;
  return shape;
}

std::vector<std::string> JobMemory::Notes() const {
  const ModelConfig& model = options_.model.config;
  const AdapterConfig adapter = options_.spec.adapter();
  std::string memory =
      absl::StrCat("plan: ", ToString(plan_), "; host memory ",
                   ByteText(state_->host_bytes() + buffers_->host_bytes() +
                            buffers_->contributions().host_bytes()));
  if (adapter.present()) {
    absl::StrAppend(&memory, " and ", ByteText(state_->base()->host_bytes()),
                    " of the base model, which other jobs may share");
  }
  const int64_t trained = TrainableParameterCount(model, adapter);
  const int64_t all =
      adapter.present() ? trained + ParameterCount(model) : trained;
  return {memory, absl::StrCat("trainable parameters: ", trained, " of ", all)};
}

}  // namespace roundhouse
