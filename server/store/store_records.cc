#include "server/store/store_records.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

constexpr char kIdPrefix[] = "job-";

// JSON has no NaN and no infinity; such a number is left out.
void PutOptional(Json* out, const char* key, const std::optional<double>& v) {
  if (v.has_value()) (*out)[key] = *v;
}

std::optional<double> GetOptional(const Json& in, const char* key) {
  if (!in.contains(key) || !in[key].is_number()) return std::nullopt;
  return in[key].get<double>();
}

absl::Status BadColumn(const char* column) {
  return absl::DataLossError(
      absl::StrCat("job store: the column ", column, " can't be read"));
}

JobProgress ReadProgress(const Json& in) {
  JobProgress p;
  p.step = in.value("step", int64_t{0});
  p.total_steps = in.value("total_steps", int64_t{0});
  p.epoch = in.value("epoch", 0.0);
  p.tokens = in.value("tokens", int64_t{0});
  p.loss = GetOptional(in, "loss");
  p.learning_rate = GetOptional(in, "learning_rate");
  p.grad_norm = GetOptional(in, "grad_norm");
  const auto experts = in.find("expert_load");
  if (experts != in.end()) p.expert_load = ExpertLoadFromJson(*experts);
  p.memory_kept = in.value("memory_kept", false);
  for (const Json& use : in.value("device_use", Json::array())) {
    p.device_use.push_back({.device = use.value("device", 0),
                            .compute_seconds = use.value("compute", 0.0),
                            .bubble_seconds = use.value("bubble", 0.0)});
  }
  return p;
}

DatasetCounts ReadDataset(const Json& in) {
  DatasetCounts d;
  d.train_sequences = in.value("train_sequences", int64_t{0});
  d.train_tokens = in.value("train_tokens", int64_t{0});
  d.train_truncated = in.value("train_truncated", int64_t{0});
  d.train_dropped = in.value("train_dropped", int64_t{0});
  d.validation_sequences = in.value("validation_sequences", int64_t{0});
  d.validation_tokens = in.value("validation_tokens", int64_t{0});
  d.validation_truncated = in.value("validation_truncated", int64_t{0});
  d.validation_dropped = in.value("validation_dropped", int64_t{0});
  d.bigram_validation_loss = GetOptional(in, "bigram_validation_loss");
  d.sha256 = in.value("sha256", "");
  return d;
}

}  // namespace

Json ExpertLoadToJson(const ExpertLoadSummary& load) {
  return {{"max_over_mean", load.max_over_mean},
          {"layer", load.layer},
          {"entropy", load.entropy},
          {"unhit_experts", load.unhit}};
}

std::optional<ExpertLoadSummary> ExpertLoadFromJson(const Json& in) {
  if (!in.is_object()) return std::nullopt;
  const auto most = GetOptional(in, "max_over_mean");
  const auto layer = GetOptional(in, "layer");
  const auto entropy = GetOptional(in, "entropy");
  const auto unhit = GetOptional(in, "unhit_experts");
  constexpr double kMost = 1 << 30;  // no conversion overflows
  if (!most || !layer || !entropy || !unhit || !(*layer >= 0) ||
      !(*layer < kMost) || !(*unhit >= 0) || !(*unhit < kMost)) {
    return std::nullopt;
  }
  return ExpertLoadSummary{*most, static_cast<int>(*layer), *entropy,
                           static_cast<int64_t>(*unhit)};
}

std::string NameOfJob(int64_t number) {
  return absl::StrCat(kIdPrefix, number);
}

std::optional<int64_t> JobNumber(const std::string& id) {
  int64_t number = 0;
  if (!absl::StartsWith(id, kIdPrefix) ||
      !absl::SimpleAtoi(absl::StripPrefix(id, kIdPrefix), &number) ||
      number < 1 || NameOfJob(number) != id) {
    return std::nullopt;
  }
  return number;
}

std::string ProgressToJson(const JobProgress& p) {
  Json out = {{"step", p.step},
              {"total_steps", p.total_steps},
              {"epoch", p.epoch},
              {"tokens", p.tokens}};
  PutOptional(&out, "loss", p.loss);
  PutOptional(&out, "learning_rate", p.learning_rate);
  PutOptional(&out, "grad_norm", p.grad_norm);
  if (p.expert_load.has_value()) {
    out["expert_load"] = ExpertLoadToJson(*p.expert_load);
  }
  if (p.memory_kept) out["memory_kept"] = true;
  for (const DeviceUse& use : p.device_use) {
    out["device_use"].push_back({{"device", use.device},
                                 {"compute", use.compute_seconds},
                                 {"bubble", use.bubble_seconds}});
  }
  return out.dump();
}

absl::StatusOr<JobProgress> ProgressFromJson(const std::string& json) {
  const Json in = Json::parse(json, nullptr, false);
  if (!in.is_object()) return BadColumn("progress");
  try {
    return ReadProgress(in);
  } catch (const Json::exception&) {
    return BadColumn("progress");
  }
}

std::string DatasetToJson(const std::optional<DatasetCounts>& dataset) {
  if (!dataset.has_value()) return "";
  const DatasetCounts& d = *dataset;
  Json out = {{"train_sequences", d.train_sequences},
              {"train_tokens", d.train_tokens},
              {"train_truncated", d.train_truncated},
              {"train_dropped", d.train_dropped},
              {"validation_sequences", d.validation_sequences},
              {"validation_tokens", d.validation_tokens},
              {"validation_truncated", d.validation_truncated},
              {"validation_dropped", d.validation_dropped},
              {"sha256", d.sha256}};
  PutOptional(&out, "bigram_validation_loss", d.bigram_validation_loss);
  return out.dump();
}

absl::StatusOr<std::optional<DatasetCounts>> DatasetFromJson(
    const std::string& json) {
  if (json.empty()) return std::optional<DatasetCounts>();
  const Json in = Json::parse(json, nullptr, false);
  if (!in.is_object()) return BadColumn("dataset");
  try {
    return std::optional<DatasetCounts>(ReadDataset(in));
  } catch (const Json::exception&) {
    return BadColumn("dataset");
  }
}

}  // namespace roundhouse
