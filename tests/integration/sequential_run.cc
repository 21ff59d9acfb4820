// Trains jobs with the sequential reference (worker/model/sequential.h), one
// after the other: no slot, stage, arena, transfer or dispatcher.
//
// Each line of its input is a job, {"spec": FILE, "data": DIR, "out": DIR},
// each of its output the job's end: "OK", or an error.  One process for many,
// because loading LibTorch takes longer than a tiny job.
//
// "spec" is a resolved job file (JSON) with the paths the daemon found, "data"
// the prepared data of the daemon's job (train/, validation/).  Writes
//
//   OUT/state-<step>.safetensors
//       at every step that the job saves: of each parameter P that trains the
//       tensors "P" (compute weights), "P.master", "P.exp_avg", "P.exp_avg_sq",
//       and "P.previous" (compute weights) where a step reads older ones
//   OUT/metrics.jsonl
//       {"step", "loss", "grad_norm", "learning_rate"}, with fp16 "loss_scale"
//       and no "grad_norm" of a step that was skipped, and {"step",
//       "eval_loss"}; numbers as hexadecimal floats in text: bits survive
//
// What a job's fields mean for a step (order of batches, schedule, clipping) is
// worked out here again, not taken from server/run/runner; but for where a
// plan of the job's own cuts its rounds, which `determinism: fast` rounds at.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/convert.h"
#include "base/lr_schedule.h"
#include "base/model/directory.h"
#include "base/model/safetensors.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/step_plan.h"
#include "server/dataset/dataset.h"
#include "server/planning/job_needs.h"
#include "server/spec/spec.h"
#include "server/weights/adapter_files.h"
#include "worker/files/normal.h"
#include "worker/model/sequential.h"

namespace roundhouse {
namespace {

using worker::AlignedVector;
using worker::SequentialBatch;
using worker::SequentialTrainer;

LrSchedule ScheduleOf(const JobSpec& job, int64_t total_steps) {
  LrSchedule schedule;
  schedule.peak = job.learning_rate;
  schedule.total_steps = total_steps;
  schedule.warmup_steps =
      job.warmup_steps +
      static_cast<int64_t>(
          std::ceil(job.warmup_ratio * static_cast<double>(total_steps)));
  switch (job.lr_scheduler_type) {
    case LrSchedulerType::kLinear:
      schedule.type = LrScheduleType::kLinear;
      break;
    case LrSchedulerType::kCosine:
      schedule.type = LrScheduleType::kCosine;
      break;
    case LrSchedulerType::kConstant:
      schedule.warmup_steps = 0;
      break;
    case LrSchedulerType::kConstantWithWarmup:
      break;
  }
  return schedule;
}

// Micro-batches with their tokens and labels.  A padded position reads row 0
// of the embedding, as it does in the daemon's gather.
class Batches {
 public:
  Batches(const Dataset& dataset, const std::vector<int64_t>& all_rows,
          int64_t micro_batch_size)
      : packed_(dataset.counts().packed) {
    for (const MicroBatch& micro_batch :
         CutMicroBatches(dataset, all_rows, micro_batch_size)) {
      const auto rows = static_cast<int64_t>(micro_batch.rows.size());
      const int64_t columns = micro_batch.row_tokens;
      AlignedVector<int32_t> tokens(rows * columns), labels(rows * columns);
      AlignedVector<int32_t> positions(rows * columns);
      for (int64_t row = 0; row < rows; ++row) {
        dataset.FillRow(
            micro_batch.rows[row], columns, tokens.data() + row * columns,
            labels.data() + row * columns, positions.data() + row * columns);
      }
      for (int32_t& token : tokens) token = std::max(token, 0);
      values_.push_back(std::move(tokens));
      values_.push_back(std::move(labels));
      values_.push_back(std::move(positions));
      shapes_.push_back({rows, columns});
    }
  }

  std::vector<SequentialBatch> borrowed() const {
    std::vector<SequentialBatch> batches;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      batches.push_back({shapes_[i].first, shapes_[i].second,
                         values_[3 * i].data(), values_[3 * i + 1].data(),
                         packed_ ? values_[3 * i + 2].data() : nullptr});
    }
    return batches;
  }

 private:
  const bool packed_;
  // tokens, labels, positions, tokens, ...
  std::vector<AlignedVector<int32_t>> values_;
  std::vector<std::pair<int64_t, int64_t>> shapes_;
};

absl::Status ReadTensor(const ParameterSource& source, float* target,
                        int64_t count) {
  std::ifstream file(source.file.path, std::ios::binary);
  AlignedVector<char> bytes(source.bytes);
  file.seekg(static_cast<std::streamoff>(source.offset));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return absl::InternalError(source.file.path + ": cannot be read");
  }
  ToF32(source.dtype, bytes.data(), target, static_cast<uint64_t>(count));
  return absl::OkStatus();
}

// sources[u] are those of the StoredTensors of the trainer's unit
// first_unit + u.
absl::Status LoadUnits(const std::vector<std::vector<ParameterSource>>& sources,
                       size_t first_unit, SequentialTrainer& trainer) {
  for (size_t u = 0; u < sources.size(); ++u) {
    const UnitSpec& unit = trainer.units()[first_unit + u];
    AlignedVector<float> master(unit.element_count, 0.0f);
    const std::vector<StoredTensor> stored = StoredTensors(unit);
    for (size_t t = 0; t < stored.size(); ++t) {
      RETURN_IF_ERROR(ReadTensor(sources[u][t],
                                 master.data() + stored[t].unit_offset_elements,
                                 stored[t].element_count));
    }
    RETURN_IF_ERROR(
        trainer.SetUnit(static_cast<int>(first_unit + u), master.data()));
  }
  return absl::OkStatus();
}

// New adapters: A uniform within 1 / sqrt(columns), each from a stream of its
// own by its place among all adapters' parameters; B zeros.
absl::Status InitAdapters(size_t first_unit, uint64_t seed,
                          SequentialTrainer& trainer) {
  uint64_t stream = 0;
  for (size_t u = first_unit; u < trainer.units().size(); ++u) {
    const UnitSpec& unit = trainer.units()[u];
    AlignedVector<float> master(unit.element_count, 0.0f);
    for (const ParameterSpec& parameter : unit.parameters) {
      const uint64_t mine = stream++;
      if (absl::StrContains(parameter.name, "lora_B")) continue;
      const double bound =
          1 / std::sqrt(static_cast<double>(parameter.shape[1]));
      worker::FillUniform(seed, mine, 0, bound,
                          master.data() + parameter.unit_offset_elements,
                          static_cast<uint64_t>(parameter.element_count));
    }
    RETURN_IF_ERROR(trainer.SetUnit(static_cast<int>(u), master.data()));
  }
  return absl::OkStatus();
}

absl::Status LoadModel(const ResolvedSpec& spec, const ModelDirectory& model,
                       SequentialTrainer& trainer) {
  const JobSpec& job = spec.spec();
  RETURN_IF_ERROR(LoadUnits(model.sources, 0, trainer));
  if (!spec.adapter().present()) return absl::OkStatus();
  const size_t first = model.sources.size();
  if (job.adapter_name_or_path.empty()) {
    return InitAdapters(first, static_cast<uint64_t>(job.seed), trainer);
  }
  ASSIGN_OR_RETURN(
      const AdapterDirectory adapter,
      OpenAdapterDirectory(AnyFiles(), job.adapter_name_or_path, model.config));
  return LoadUnits(adapter.sources, first, trainer);
}

absl::Status SaveState(const SequentialTrainer& trainer, DType dtype,
                       bool stale, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string> data;
  const auto add = [&](const StoredTensor& tensor, const char* suffix,
                       DType type, const void* unit) {
    const uint64_t size = DTypeBytes(type);
    entries.push_back({tensor.name + suffix, ToFileDType(type), tensor.shape});
    data.emplace_back(
        static_cast<const char*>(unit) + tensor.unit_offset_elements * size,
        tensor.element_count * size);
  };
  for (size_t u = 0; u < trainer.units().size(); ++u) {
    const int unit = static_cast<int>(u);
    if (!trainer.trainable(unit)) continue;
    for (const StoredTensor& tensor : StoredTensors(trainer.units()[u])) {
      add(tensor, "", dtype, trainer.compute(unit));
      add(tensor, ".master", DType::kF32, trainer.master(unit));
      add(tensor, ".exp_avg", DType::kF32, trainer.exp_avg(unit));
      add(tensor, ".exp_avg_sq", DType::kF32, trainer.exp_avg_sq(unit));
      if (stale) add(tensor, ".previous", dtype, trainer.stale(unit));
    }
  }
  ASSIGN_OR_RETURN(const SafetensorsPrefix prefix,
                   BuildSafetensorsHeader(entries));
  std::ofstream file(path, std::ios::binary);
  file << prefix.bytes;
  for (const std::string& tensor : data) file << tensor;
  file.close();
  return file ? absl::OkStatus() : absl::InternalError(path + ": not written");
}

class Run {
 public:
  Run(const ResolvedSpec& spec, ModelDirectory model, const std::string& out)
      : spec_(spec),
        model_(std::move(model)),
        metrics_(out + "/metrics.jsonl"),
        out_(out) {}

  absl::Status Train(const std::string& data) {
    const JobSpec& job = spec_.spec();
    const int64_t vocabulary = model_.config.vocab_size;
    ASSIGN_OR_RETURN(train_, Dataset::Open(data + "/train", vocabulary));
    if (!job.validation_dataset.empty()) {
      ASSIGN_OR_RETURN(validation_,
                       Dataset::Open(data + "/validation", vocabulary));
    }
    worker::SequentialOptions options = Options();
    RETURN_IF_ERROR(RoundAsThePlanDoes(options));
    ASSIGN_OR_RETURN(trainer_, SequentialTrainer::Create(options));
    RETURN_IF_ERROR(LoadModel(spec_, model_, *trainer_));
    BatchOrder order(train_->counts().rows, job.batch_size,
                     static_cast<uint64_t>(job.seed));
    int64_t total = job.max_steps;
    if (total == 0) {
      total = static_cast<int64_t>(std::ceil(
          job.num_train_epochs * static_cast<double>(order.steps_per_epoch())));
    }
    RETURN_IF_ERROR(Evaluate(0));
    const LrSchedule schedule = ScheduleOf(job, total);
    for (int64_t step = 1; step <= total; ++step) {
      // A step that was skipped does not move the schedule.
      const int64_t updates =
          step - 1 - trainer_->loss_scaler().state().skipped_steps;
      RETURN_IF_ERROR(
          Step(step, order.Batch(step - 1), LearningRate(schedule, updates)));
      const bool due = job.save_steps > 0 && step % job.save_steps == 0;
      if (!due && step != total) continue;
      RETURN_IF_ERROR(
          SaveState(*trainer_, TrainedDtype(), Stale(),
                    absl::StrCat(out_, "/state-", step, ".safetensors")));
    }
    RETURN_IF_ERROR(Evaluate(total));
    metrics_.close();
    return metrics_ ? absl::OkStatus() : absl::InternalError("metrics.jsonl");
  }

 private:
  // Adapters are fp32 whatever the model is.
  DType TrainedDtype() const {
    return spec_.adapter().present() ? DType::kF32 : spec_.dtype();
  }

  bool Stale() const {
    return spec_.spec().optimizer_mode == OptimizerMode::kAsync;
  }

  worker::SequentialOptions Options() const {
    const JobSpec& job = spec_.spec();
    worker::SequentialOptions options;
    options.config = model_.config;
    options.adapter = spec_.adapter();
    options.seed = static_cast<uint64_t>(job.seed);
    options.dtype = spec_.dtype();
    options.round_limit = spec_.micro_batches_per_round();
    options.group_limit = spec_.gradient_groups();
    options.head_token_chunk = job.head_token_chunk;
    options.adamw = {job.adam_beta1, job.adam_beta2, job.adam_epsilon,
                     job.weight_decay};
    options.max_gradient_norm = job.max_grad_norm;
    options.scale_loss = job.dtype == DType::kF16;
    options.stale = Stale();
    return options;
  }

  // With determinism: fast, whose bits are those of the job's own plan.
  absl::Status RoundAsThePlanDoes(worker::SequentialOptions& options) const {
    const JobSpec& job = spec_.spec();
    if (spec_.determinism() == Determinism::kBitwise ||
        job.method == TrainingMethod::kLora || options.dtype == DType::kF32) {
      return absl::OkStatus();
    }
    if (!job.plan.has_value()) {
      return absl::InvalidArgumentError("determinism: fast needs a plan");
    }
    const HostRoom room = {1, std::numeric_limits<uint64_t>::max()};
    ASSIGN_OR_RETURN(const Plan plan,
                     InitialPlan(spec_, model_.config, room, {}));
    options.contribution_dtype = options.dtype;
    options.contributed_groups = [plan](int64_t layer, int64_t groups) {
      return ContributedGroups(plan, static_cast<int>(layer), groups);
    };
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, const std::vector<int64_t>& sequences,
                    double learning_rate) {
    const Batches batches(*train_, sequences, spec_.micro_batch_size());
    const double scale = trainer_->loss_scaler().scale();
    ASSIGN_OR_RETURN(const worker::SequentialStep done,
                     trainer_->Step(batches.borrowed(), learning_rate));
    std::map<std::string, double> values = {{"loss", done.loss.mean()},
                                            {"learning_rate", learning_rate}};
    if (done.updated) values["grad_norm"] = done.gradient_norm;
    if (spec_.dtype() == DType::kF16) values["loss_scale"] = scale;
    Write(step, values);
    return absl::OkStatus();
  }

  absl::Status Evaluate(int64_t step) {
    if (validation_ == nullptr) return absl::OkStatus();
    std::vector<int64_t> all(validation_->counts().rows);
    std::iota(all.begin(), all.end(), 0);
    const Batches batches(*validation_, all, spec_.micro_batch_size());
    ASSIGN_OR_RETURN(const worker::SequentialLoss loss,
                     trainer_->Evaluate(batches.borrowed()));
    Write(step, {{"eval_loss", loss.mean()}});
    return absl::OkStatus();
  }

  void Write(int64_t step, const std::map<std::string, double>& values) {
    nlohmann::json line = {{"step", step}};
    for (const auto& [name, value] : values) {
      line[name] = absl::StrFormat("%a", value);
    }
    metrics_ << line.dump() << "\n";
  }

  const ResolvedSpec spec_;
  const ModelDirectory model_;
  std::ofstream metrics_;
  const std::string out_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> validation_;
  std::unique_ptr<SequentialTrainer> trainer_;
};

absl::Status RunSequentially(const std::string& line) {
  const auto job = nlohmann::json::parse(line);
  const std::string out = job.at("out");
  std::ifstream file(job.at("spec").get<std::string>());
  std::stringstream text;
  text << file.rdbuf();
  ASSIGN_OR_RETURN(const ResolvedSpec spec, ResolvedSpec::FromJson(text.str()));
  ASSIGN_OR_RETURN(
      ModelDirectory model,
      OpenModelDirectory(AnyFiles(), spec.spec().model_name_or_path));
  std::filesystem::create_directories(out);
  return Run(spec, std::move(model), out).Train(job.at("data"));
}

}  // namespace
}  // namespace roundhouse

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << roundhouse::RunSequentially(line) << std::endl;
  }
  _exit(0);  // as worker/main.cc
}
