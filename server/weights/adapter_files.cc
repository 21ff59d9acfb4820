#include "server/weights/adapter_files.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/limits.h"
#include "base/model/input_file.h"
#include "base/model/json.h"
#include "base/model/safetensors.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/spec/hub_cache.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Fields that are read below, and those that say nothing about what a saved
// adapter computes.
const std::set<std::string>& HandledFields() {
  static const auto* const fields = new std::set<std::string>{
      "peft_type", "task_type", "r", "lora_alpha", "lora_dropout",
      "target_modules", "base_model_name_or_path", "bias", "init_lora_weights",
      // Where it came from and how it was made.
      "auto_mapping", "inference_mode", "revision", "peft_version",
      "loftq_config", "eva_config", "corda_config",
      // Mean something only beside options that are refused.
      "layers_pattern", "megatron_core", "qalora_group_size"};
  return *fields;
}

// null, false, "", {} and []: how PEFT writes an option that is not used.
bool IsOff(const Json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

std::string Shown(const Json& value) {
  constexpr size_t kLongest = 80;
  const std::string text =
      value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// The fields of one adapter_config.json.
class ConfigReader {
 public:
  ConfigReader(Json json, std::string path)
      : json_(std::move(json)), path_(std::move(path)) {}

  absl::Status Read(AdapterDirectory* adapter) const {
    RETURN_IF_ERROR(CheckIsLora());
    RETURN_IF_ERROR(CheckOptions());
    RETURN_IF_ERROR(ReadRank(&adapter->config));
    ASSIGN_OR_RETURN(adapter->config.alpha, Number("lora_alpha", 8));
    ASSIGN_OR_RETURN(adapter->config.dropout, Number("lora_dropout", 0));
    const double alpha = adapter->config.alpha;
    if (!(alpha > 0 && alpha <= kMaxAdapterAlpha)) {
      return Bad("lora_alpha",
                 absl::StrCat("a number above 0 to ", kMaxAdapterAlpha));
    }
    if (!(adapter->config.dropout >= 0 && adapter->config.dropout < 1)) {
      return Bad("lora_dropout", "a number from 0 to below 1");
    }
    ASSIGN_OR_RETURN(adapter->config.targets, ReadTargets());
    const Json base = Get("base_model_name_or_path");
    if (base.is_string()) adapter->base_model = base.get<std::string>();
    const Json revision = Get("revision");
    if (revision.is_string() && revision != "main") {
      adapter->revision = revision.get<std::string>();
    }
    return absl::OkStatus();
  }

 private:
  Json Get(const char* field) const {
    return json_.contains(field) ? json_[field] : Json();
  }
  absl::Status Bad(const char* field, const std::string& expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": ", field, ": expected ", expected, ", got ",
                     Shown(Get(field))));
  }
  absl::Status NotSupported(const std::string& field, const Json& value,
                            const std::string& hint = "") const {
    return absl::UnimplementedError(absl::StrCat(
        path_, ": ", field, ": ", Shown(value), " is not supported", hint));
  }

  absl::Status CheckIsLora() const {
    const Json type = Get("peft_type");
    if (!type.is_string()) return Bad("peft_type", "\"LORA\"");
    if (type != "LORA") return NotSupported("peft_type", type, "; LORA is");
    const Json task = Get("task_type");
    if (IsOff(task) || task == "CAUSAL_LM") return absl::OkStatus();
    return NotSupported("task_type", task, "; CAUSAL_LM is");
  }

  absl::Status CheckOptions() const {
    const Json bias = Get("bias");
    if (!IsOff(bias) && bias != "none") {
      return NotSupported("bias", bias, "; \"none\" is");
    }
    // Others change the base's weights too.
    const Json init = Get("init_lora_weights");
    if (!init.is_null() && !init.is_boolean() && init != "gaussian") {
      return NotSupported("init_lora_weights", init);
    }
    for (const auto& [field, value] : json_.items()) {
      if (HandledFields().count(field) == 0 && !IsOff(value)) {
        return NotSupported(field, value);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadRank(AdapterConfig* config) const {
    const Json rank = json_.contains("r") ? json_["r"] : Json(8);
    if (!rank.is_number_integer() || rank < 1 || rank > kMaxAdapterRank) {
      return Bad("r", absl::StrCat("an integer from 1 to ", kMaxAdapterRank));
    }
    config->rank = rank.get<int64_t>();
    return absl::OkStatus();
  }

  absl::StatusOr<double> Number(const char* field, double absent) const {
    const Json value = Get(field);
    if (value.is_null()) return absent;
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      return Bad(field, "a number");
    }
    return value.get<double>();
  }

  absl::StatusOr<uint32_t> ReadTargets() const {
    const Json modules = Get("target_modules");
    if (modules == "all-linear") return kAllLinearTargets;
    if (modules.is_string()) {
      return NotSupported("target_modules", modules,
                          " (a regular expression); list the modules");
    }
    if (!modules.is_array() || modules.empty()) {
      return Bad("target_modules", "a list of modules");
    }
    uint32_t targets = 0;
    for (const Json& module : modules) {
      const uint32_t bit =
          module.is_string() ? TargetModuleBit(module.get<std::string>()) : 0;
      if (bit == 0) {
        return NotSupported(
            "target_modules", module,
            absl::StrCat(
                "; these are: ",
                absl::StrJoin(TargetModuleNames(kAllLinearTargets), ", ")));
      }
      targets |= bit;
    }
    return targets;
  }

  const Json json_;
  const std::string path_;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<ParameterSource> SourceOf(const ParameterSpec& spec,
                                         const SafetensorsHeader& header,
                                         const std::string& path) {
  const auto found = header.tensors.find(spec.name);
  if (found == header.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor ", spec.name,
                     " is missing: the adapter is for another model, or for "
                     "some of its layers only"));
  }
  const SafetensorsTensor& tensor = found->second;
  if (tensor.shape != spec.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor ", spec.name, ": shape ",
                     ShapeText(tensor.shape), " found, ", ShapeText(spec.shape),
                     " expected for the base model and r"));
  }
  const auto dtype = ToDType(tensor.dtype);
  if (!dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        path, ": tensor ", spec.name, ": dtype ", FileDTypeName(tensor.dtype),
        " is not supported; supported: F32, BF16, F16"));
  }
  return ParameterSource{.file = header.file,
                         .offset = tensor.begin,
                         .bytes = tensor.end - tensor.begin,
                         .dtype = *dtype};
}

absl::Status FindSources(const FileOpener& files, const std::string& path,
                         const ModelConfig& base, AdapterDirectory* adapter) {
  ASSIGN_OR_RETURN(const SafetensorsHeader header,
                   ReadSafetensorsHeader(files, path));
  adapter->files.push_back(header.file);
  std::set<std::string> unused;
  for (const auto& [name, tensor] : header.tensors) unused.insert(name);
  for (int64_t layer = 0; layer < base.layer_count; ++layer) {
    const UnitSpec unit = AdapterUnit(base, adapter->config, layer);
    std::vector<ParameterSource>& sources = adapter->sources.emplace_back();
    for (const ParameterSpec& spec : unit.parameters) {
      ASSIGN_OR_RETURN(ParameterSource source, SourceOf(spec, header, path));
      sources.push_back(std::move(source));
      unused.erase(spec.name);
    }
  }
  if (unused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", unused.size(), " tensors have no place in an ",
      "adapter of the base model with these target_modules: ", *unused.begin(),
      unused.size() > 1 ? " and others" : ""));
}

std::string ConfigPath(const std::string& directory) {
  return absl::StrCat(directory, "/", kAdapterConfigName);
}

// The last component of a path or of a name on the hub.
std::string LastPart(const std::string& name) {
  const fs::path path(name);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string Modules(uint32_t targets) {
  return absl::StrJoin(TargetModuleNames(targets), ", ");
}

absl::Status Differs(const char* field, const std::string& said,
                     const std::string& path, const std::string& has) {
  return FieldError(
      FieldReason::kInvalidValue, field,
      absl::StrCat(said, "; the adapter in ", path,
                   ", from which the job is to go on, has ", has));
}

}  // namespace

absl::StatusOr<AdapterDirectory> ParseAdapterConfig(const std::string& json,
                                                    const std::string& path) {
  RETURN_IF_ERROR(CheckJson(json, path,
                            {.max_bytes = kMaxConfigBytes,
                             .max_depth = kMaxJsonDepth,
                             .max_keys = kMaxJsonKeys}));
  Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(path + ": not a JSON object");
  }
  AdapterDirectory adapter;
  RETURN_IF_ERROR(ConfigReader(std::move(parsed), path).Read(&adapter));
  return adapter;
}

absl::StatusOr<AdapterDirectory> ReadAdapterConfig(
    const FileOpener& files, const std::string& directory) {
  const std::string path = ConfigPath(directory);
  ASSIGN_OR_RETURN(const InputFile file, files.Open(path));
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(file, kMaxConfigBytes));
  ASSIGN_OR_RETURN(AdapterDirectory adapter, ParseAdapterConfig(text, path));
  adapter.path = directory;
  adapter.files.push_back(file.checked());
  return adapter;
}

bool IsAdapterDirectory(const FileOpener& files, const std::string& path) {
  return files.IsThere(ConfigPath(path)) &&
         !files.IsThere(path + "/config.json");
}

absl::StatusOr<std::string> BaseOfAdapter(const FileOpener& files,
                                          const std::string& path) {
  ASSIGN_OR_RETURN(const AdapterDirectory adapter,
                   ReadAdapterConfig(files, path));
  const bool on_hub = HubCache::IsId(adapter.base_model);
  if (on_hub && !adapter.revision.empty()) {
    return absl::StrCat(adapter.base_model, "@", adapter.revision);
  }
  if (!adapter.base_model.empty()) return adapter.base_model;
  return absl::InvalidArgumentError(
      absl::StrCat(ConfigPath(path),
                   ": base_model_name_or_path is missing: it says what the "
                   "adapter belongs to"));
}

absl::StatusOr<AdapterDirectory> OpenAdapterDirectory(const FileOpener& files,
                                                      const std::string& path,
                                                      const ModelConfig& base) {
  ASSIGN_OR_RETURN(AdapterDirectory adapter, ReadAdapterConfig(files, path));
  const std::string weights = absl::StrCat(path, "/", kAdapterWeightsName);
  if (!files.IsThere(weights) && files.IsThere(path + "/adapter_model.bin")) {
    return absl::NotFoundError(
        absl::StrCat(weights,
                     ": no such file; adapter_model.bin is not read, "
                     "save the adapter as safetensors"));
  }
  const auto targets =
      TargetsOf(adapter.config.targets, base.mixture.layers.any());
  if (!targets.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        ConfigPath(path), ": target_modules: ", targets.status().message()));
  }
  RETURN_IF_ERROR(FindSources(files, weights, base, &adapter));
  return adapter;
}

bool SameBaseName(const std::string& a, const std::string& b) {
  return LastPart(a) == LastPart(b);
}

absl::StatusOr<JobSpec> WithAdapter(JobSpec spec,
                                    const AdapterDirectory& adapter) {
  const AdapterConfig& has = adapter.config;
  const int64_t rank = spec.lora_r.value_or(has.rank);
  const double alpha = spec.lora_alpha.value_or(has.alpha);
  const uint32_t targets = spec.target_modules.value_or(has.targets);
  if (rank != has.rank) {
    return Differs("lora_r", absl::StrCat(rank), adapter.path,
                   absl::StrCat(has.rank));
  }
  if (alpha != has.alpha) {
    return Differs("lora_alpha", absl::StrCat(alpha), adapter.path,
                   absl::StrCat(has.alpha));
  }
  if (targets != has.targets) {
    return Differs("target_modules", Modules(targets), adapter.path,
                   Modules(has.targets));
  }
  spec.lora_r = rank;
  spec.lora_alpha = alpha;
  spec.target_modules = targets;
  spec.lora_dropout = spec.lora_dropout.value_or(has.dropout);
  return spec;
}

absl::Status CheckAdapterIs(const AdapterConfig& wanted,
                            const AdapterDirectory& adapter) {
  const AdapterConfig& has = adapter.config;
  const auto bad = [&](const char* field, const std::string& found,
                       const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(adapter.path, "/", kAdapterConfigName, ": ", field, ": ",
                     found, " found, ", expected, " expected by the job"));
  };
  if (has.rank != wanted.rank) {
    return bad("r", absl::StrCat(has.rank), absl::StrCat(wanted.rank));
  }
  if (has.alpha != wanted.alpha) {
    return bad("lora_alpha", absl::StrCat(has.alpha),
               absl::StrCat(wanted.alpha));
  }
  if (has.targets != wanted.targets) {
    return bad("target_modules", Modules(has.targets), Modules(wanted.targets));
  }
  return absl::OkStatus();
}

std::string AdapterConfigJson(const AdapterConfig& adapter,
                              const std::string& base_model,
                              const std::string& revision) {
  const bool whole = adapter.alpha == std::floor(adapter.alpha);
  const Json alpha =
      whole ? Json(static_cast<int64_t>(adapter.alpha)) : Json(adapter.alpha);
  return Json{{"peft_type", "LORA"},
              {"task_type", "CAUSAL_LM"},
              {"base_model_name_or_path", base_model},
              {"revision", revision.empty() ? Json() : Json(revision)},
              {"r", adapter.rank},
              {"lora_alpha", alpha},
              {"lora_dropout", adapter.dropout},
              {"target_modules", TargetModuleNames(adapter.targets)},
              {"bias", "none"},
              {"fan_in_fan_out", false},
              {"inference_mode", true},
              {"init_lora_weights", true},
              {"modules_to_save", nullptr},
              {"layers_to_transform", nullptr},
              {"rank_pattern", Json::object()},
              {"alpha_pattern", Json::object()},
              {"use_dora", false},
              {"use_rslora", false}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace roundhouse
