#include "server/api/plan_service.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/calls/unary_call.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

double Seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

PlanQuestion Question(const v1::PlanTrainingRequest& request) {
  PlanQuestion question;
  question.model = request.model();
  question.devices = request.devices();
  question.host_memory_bytes = request.host_memory_bytes();
  question.host_bandwidth = request.host_bandwidth();
  question.method = request.method();
  question.lora_r = request.lora_r();
  question.target_modules = {request.target_modules().begin(),
                             request.target_modules().end()};
  question.max_length = request.max_length();
  question.batch_size = request.batch_size();
  question.micro_batch_size = request.micro_batch_size();
  question.gradient_checkpointing = request.gradient_checkpointing();
  question.saved_inputs = request.saved_inputs();
  question.determinism = request.determinism();
  if (request.has_max_grad_norm()) {
    question.max_grad_norm = request.max_grad_norm();
  }
  question.fp16_accumulation = request.fp16_accumulation();
  return question;
}

v1::SequenceLimit ToProto(SequenceLimit limit) {
  switch (limit) {
    case SequenceLimit::kDeviceMemory:
      return v1::SEQUENCE_LIMIT_DEVICE_MEMORY;
    case SequenceLimit::kHostMemory:
      return v1::SEQUENCE_LIMIT_HOST_MEMORY;
    case SequenceLimit::kSearched:
      break;
  }
  return v1::SEQUENCE_LIMIT_NONE;
}

void Put(const BubbleCauses& bubble, v1::BubbleSeconds* out) {
  out->set_fill_and_drain(Seconds(bubble.fill_and_drain_ns));
  out->set_weights(Seconds(bubble.weights_ns));
  out->set_gradients(Seconds(bubble.gradients_ns));
  out->set_end_of_step(Seconds(bubble.end_of_step_ns));
}

void Put(const HostMemory& host, v1::PlannedHost* out) {
  out->set_base_bytes(host.base);
  out->set_state_bytes(host.state);
  out->set_boundary_bytes(host.boundaries);
  out->set_contribution_bytes(host.contributions);
  out->set_total_bytes(host.total());
}

void PutModel(const TrainingSetup& setup, v1::PlanTrainingResponse* out) {
  out->set_family(setup.shape.model_type);
  out->set_parameters(setup.shape.parameter_count());
  out->set_trained_parameters(TrainedParameters(setup));
  out->set_trainable(setup.shape.trainable);
  out->set_max_position_tokens(setup.shape.max_position_tokens);
}

void PutSources(const ForecastQuestion& question,
                v1::PlanTrainingResponse* out) {
  std::set<std::string> known;
  for (const DevicePreset& preset : question.devices) {
    if (!known.insert(preset.name).second) continue;
    v1::DeviceSource* source = out->add_sources();
    source->set_kind(preset.name);
    source->set_source(preset.source);
    source->set_tflops(TflopsOf(preset, question.accumulation));
    source->set_link_rate(preset.link_rate);
  }
}

void PutDevices(const StepForecast& forecast, v1::PlanTrainingResponse* out) {
  for (const DeviceForecast& device : forecast.devices) {
    v1::PlannedDevice* planned = out->add_devices();
    planned->set_index(out->devices_size() - 1);
    planned->set_kind(device.preset.name);
    planned->set_memory_bytes(device.preset.memory_bytes);
    planned->set_used_bytes(device.used_bytes);
    planned->set_compute_seconds(Seconds(device.time.compute_ns));
    Put(device.time.bubble, planned->mutable_bubble());
  }
}

void PutForecast(const StepForecast& forecast, v1::PlanTrainingResponse* out) {
  out->set_feasible(forecast.feasible());
  out->set_device_missing_bytes(forecast.device_missing_bytes);
  out->set_host_missing_bytes(forecast.host_missing_bytes);
  out->set_device_needed_bytes(forecast.device_needed_bytes);
  out->set_micro_batch_size(forecast.micro_batch_sequences);
  out->set_micro_batches(forecast.micro_batches);
  out->set_micro_batches_per_round(forecast.round_micro_batches);
  Put(forecast.host, out->mutable_host());
  out->mutable_host()->set_wanted_boundary_bytes(
      forecast.wanted_boundary_bytes);
  out->set_backward_inputs(forecast.inputs.all);
  out->set_saved_inputs(forecast.inputs.saved);
  out->set_longest_sequence(forecast.longest.tokens);
  out->set_longest_sequence_limit(ToProto(forecast.longest.limit));
  if (forecast.devices.empty()) return;
  out->set_plan(forecast.plan);
  out->set_step_seconds(Seconds(forecast.step_ns));
  out->set_tokens_per_step(forecast.tokens_per_step);
  out->set_tokens_per_second(forecast.tokens_per_second());
  out->set_bubble_ratio(forecast.bubble_percent() / 100);
  Put(forecast.bubble, out->mutable_bubble());
  PutDevices(forecast, out);
}

// Names that repeat, each once.
class NameTable {
 public:
  int Index(const std::string& name) {
    return index_.emplace(name, static_cast<int>(index_.size())).first->second;
  }
  template <typename Names>
  void Write(Names* out) const {
    for (size_t i = 0; i < index_.size(); ++i) out->Add();
    for (const auto& [name, index] : index_) (*out)[index] = name;
  }

 private:
  std::map<std::string, int> index_;
};

absl::Status PutTimeline(const Schedule& round, v1::Timeline* out) {
  if (round.intervals.size() > kMaxTimelineIntervals) {
    return FieldError(
        absl::StatusCode::kResourceExhausted, FieldReason::kInvalidValue,
        "timeline",
        absl::StrCat("has ", round.intervals.size(), " intervals, at most ",
                     kMaxTimelineIntervals,
                     " are sent; a smaller batch_size has fewer"));
  }
  NameTable resources, kinds;
  for (const Interval& interval : round.intervals) {
    v1::TimelineInterval* sent = out->add_intervals();
    sent->set_resource(resources.Index(ResourceName(interval.resource)));
    sent->set_kind(kinds.Index(std::string(WorkKindName(interval.kind))));
    sent->set_layer_begin(interval.layer_begin);
    sent->set_layer_end(interval.layer_end);
    sent->set_micro_batch(interval.micro_batch);
    sent->set_start_ns(interval.start_ns);
    sent->set_length_ns(interval.length_ns());
    sent->set_bytes(interval.bytes);
  }
  resources.Write(out->mutable_resources());
  kinds.Write(out->mutable_kinds());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PlanTrainingResponse> ToProto(const TrainingPlan& plan,
                                                 bool timeline) {
  v1::PlanTrainingResponse out;
  PutModel(plan.question.setup, &out);
  PutSources(plan.question, &out);
  PutForecast(plan.forecast, &out);
  if (timeline) {
    RETURN_IF_ERROR(PutTimeline(plan.forecast.round, out.mutable_timeline()));
  }
  return out;
}

grpc::ServerUnaryReactor* PlanService::PlanTraining(
    grpc::CallbackServerContext* context,
    const v1::PlanTrainingRequest* request,
    v1::PlanTrainingResponse* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        if (context->IsCancelled()) {
          return absl::CancelledError("the call is gone");
        }
        PlanQuestion question = Question(*request);
        question.caller = entered.caller;
        ASSIGN_OR_RETURN(const TrainingPlan plan, planner_->Plan(question));
        ASSIGN_OR_RETURN(*response, ToProto(plan, request->timeline()));
        return absl::OkStatus();
      });
}

}  // namespace roundhouse
