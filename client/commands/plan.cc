#include "client/commands/plan.h"

#include <cstdint>
#include <optional>
#include <ostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/byte_size.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/files.h"
#include "client/tables/message_json.h"
#include "client/tables/plan_output.h"
#include "client/tables/trace_json.h"
#include "proto/roundhouse/v1/plan.pb.h"

namespace roundhouse::client {
namespace {

class PlanCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  v1::PlanTrainingRequest Request() const;
  absl::Status WriteTrace(const v1::PlanTrainingResponse& plan,
                          Session* session) const;
  void Show(v1::PlanTrainingResponse* plan, Session* session) const;

  std::string model_;
  std::string devices_;
  std::string host_memory_text_;
  int64_t host_memory_bytes_ = 0;
  std::string host_bandwidth_text_;
  double host_bandwidth_ = 0;
  std::string method_;
  int64_t lora_r_ = 0;
  std::string target_modules_;
  int64_t max_length_ = 0;
  int64_t batch_size_ = 0;
  int64_t micro_batch_size_ = 0;
  std::string gradient_checkpointing_;
  std::string saved_inputs_;
  std::string determinism_;
  std::string max_grad_norm_text_;
  std::optional<double> max_grad_norm_;
  bool fp16_accumulation_ = false;
  std::string trace_;
};

const CommandInfo& PlanCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "plan",
      "",
      "what training would come to on other devices",
      "Predicted step time, tokens/s, bubbles by cause, device and host memory "
      "and the\nlongest sequence that fits, from config.json alone.  The "
      "server "
      "need not have such\ndevices (roundhoused --devices=none is enough), nor "
      "be able to train the model.\n\nWhat is not given is a job file's "
      "default.  The exit code is 7 when it does not\nfit; what is missing is "
      "said all the same.",
      0,
      0};
  return info;
}

void PlanCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("model", 0, "MODEL", &model_,
                   "a directory, a config.json, job:NAME or a hub id");
  flags->AddString("devices", 0, "DEVICES", &devices_,
                   "such as 8xrtx4090, or a list of such; known are rtx3090, "
                   "rtx4090, rtx5090, a800, h100 and h200; h100:24GiB has that "
                   "much memory");
  flags->AddString("host-memory", 0, "BYTES", &host_memory_text_,
                   "such as 800GiB; as much as it takes when not given");
  flags->AddString("host-bandwidth", 0, "GB/S", &host_bandwidth_text_,
                   "what host memory reads and writes together; 200 when not "
                   "given");
  flags->AddString("method", 0, "METHOD", &method_,
                   "full (the default) or lora");
  flags->AddInt("lora-r", 0, "N", 1, &lora_r_, "the rank of the adapters");
  flags->AddString("target-modules", 0, "LIST", &target_modules_,
                   "what gets adapters, with commas, or all-linear");
  flags->AddInt("max-length", 0, "N", 1, &max_length_,
                "the tokens of every sequence; a job's default when not given");
  flags->AddInt("batch-size", 0, "N", 1, &batch_size_,
                "the sequences of a step");
  flags->AddInt("micro-batch-size", 0, "N", 1, &micro_batch_size_,
                "the sequences of a micro-batch; auto when not given");
  flags->AddString("gradient-checkpointing", 0, "HOW", &gradient_checkpointing_,
                   "auto, stage or layer");
  flags->AddString("saved-inputs", 0, "HOW", &saved_inputs_,
                   "auto, all, or as in --saved-inputs='every 2'");
  flags->AddString("determinism", 0, "WORD", &determinism_,
                   "bitwise or fast (the default of jobs on GPUs)");
  flags->AddString("max-grad-norm", 0, "N", &max_grad_norm_text_,
                   "where gradients are clipped; 0 is no clipping");
  flags->AddBool("fp16-accumulation", 0, &fp16_accumulation_,
                 "plan for products that add up in fp16, as published "
                 "measurements do; Roundhouse adds up in fp32");
  flags->AddString("trace", 0, "FILE", &trace_,
                   "write a step's timeline for ui.perfetto.dev");
}

absl::Status PlanCommand::CheckFlags() {
  if (model_.empty()) {
    return absl::InvalidArgumentError("flag --model is missing");
  }
  if (devices_.empty()) {
    return absl::InvalidArgumentError("flag --devices is missing");
  }
  if (!host_memory_text_.empty()) {
    const auto bytes = ParseByteSize(host_memory_text_);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --host-memory: ", bytes.status().message()));
    }
    host_memory_bytes_ = *bytes;
  }
  if (!host_bandwidth_text_.empty() &&
      !(absl::SimpleAtod(host_bandwidth_text_, &host_bandwidth_) &&
        host_bandwidth_ > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --host-bandwidth: \"", host_bandwidth_text_,
                     "\" is not a number above 0"));
  }
  if (!max_grad_norm_text_.empty() &&
      !absl::SimpleAtod(max_grad_norm_text_, &max_grad_norm_.emplace())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --max-grad-norm: \"", max_grad_norm_text_, "\" is no number"));
  }
  return absl::OkStatus();
}

v1::PlanTrainingRequest PlanCommand::Request() const {
  v1::PlanTrainingRequest request;
  request.set_model(model_);
  request.set_devices(devices_);
  request.set_host_memory_bytes(host_memory_bytes_);
  request.set_host_bandwidth(host_bandwidth_);
  request.set_method(method_);
  request.set_lora_r(lora_r_);
  for (const absl::string_view module :
       absl::StrSplit(target_modules_, ',', absl::SkipEmpty())) {
    request.add_target_modules(std::string(module));
  }
  request.set_max_length(max_length_);
  request.set_batch_size(batch_size_);
  request.set_micro_batch_size(micro_batch_size_);
  request.set_gradient_checkpointing(gradient_checkpointing_);
  request.set_saved_inputs(saved_inputs_);
  request.set_determinism(determinism_);
  if (max_grad_norm_.has_value()) request.set_max_grad_norm(*max_grad_norm_);
  request.set_fp16_accumulation(fp16_accumulation_);
  request.set_timeline(!trace_.empty());
  return request;
}

absl::Status PlanCommand::WriteTrace(const v1::PlanTrainingResponse& plan,
                                     Session* session) const {
  if (plan.timeline().intervals().empty()) {
    session->err() << "no trace: there is no plan that fits the devices\n";
    return absl::OkStatus();
  }
  const absl::Status written =
      WriteTextFile(trace_, TraceJson(plan.timeline()));
  if (written.ok()) {
    session->err() << "trace of a round: " << VisibleLine(trace_) << "\n";
  }
  return written;
}

void PlanCommand::Show(v1::PlanTrainingResponse* plan, Session* session) const {
  plan->clear_timeline();  // it is in the file
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << PlanText(*plan, host_memory_bytes_);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(*plan), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << (plan->feasible() ? "feasible" : "infeasible") << "\n";
      break;
  }
}

ExitCode PlanCommand::Run(const std::vector<std::string>&, Session* session) {
  v1::PlanTrainingResponse plan;
  // As long as the search takes.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const grpc::Status status =
      session->plans().PlanTraining(context.get(), Request(), &plan);
  if (!status.ok()) return session->Fail("plan " + model_, status);
  const absl::Status traced =
      trace_.empty() ? absl::OkStatus() : WriteTrace(plan, session);
  Show(&plan, session);
  if (plan.max_position_tokens() > 0 &&
      max_length_ > plan.max_position_tokens()) {
    session->err() << "Warning: no job may have max_length " << max_length_
                   << ": the model allows " << plan.max_position_tokens()
                   << " (max_position_embeddings of its config.json)\n";
  }
  if (!traced.ok()) {
    session->err() << "roundhouse: plan: "
                   << MessageText(std::string(traced.message())) << "\n";
    return ExitCode::kError;
  }
  return plan.feasible() ? ExitCode::kOk : ExitCode::kQuota;
}

}  // namespace

std::unique_ptr<Command> MakePlanCommand() {
  return std::make_unique<PlanCommand>();
}

}  // namespace roundhouse::client
