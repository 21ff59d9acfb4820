#include "client/dry_run.h"

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/message_json.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

using Spec = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

// "" where it is not in `spec`; a list with commas.
std::string Field(const Spec& spec, const char* name) {
  const auto found = spec.find(name);
  if (found == spec.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return JsonText(*found, -1);
  return absl::StrJoin(*found, ", ", [](std::string* out, const Spec& item) {
    absl::StrAppend(
        out, item.is_string() ? item.get<std::string>() : JsonText(item, -1));
  });
}

// Many files are named by the first.
std::string FilesText(const Spec& spec, const char* name) {
  const auto found = spec.find(name);
  if (found == spec.end() || !found->is_array() || found->size() < 2 ||
      !found->front().is_string()) {
    return Field(spec, name);
  }
  return absl::StrCat(found->front().get<std::string>(), " and ",
                      found->size() - 1, " more");
}

std::string MethodText(const Spec& spec) {
  const std::string method = Field(spec, "method");
  if (method != "lora") return method;
  return absl::StrCat("lora of rank ", Field(spec, "lora_r"), " at ",
                      Field(spec, "target_modules"));
}

std::string ParametersText(const v1::JobNeeds& needs) {
  const std::string all = FormatCount(static_cast<double>(needs.parameters()));
  if (needs.trainable_parameters() == needs.parameters()) {
    return all + ", all of them trained";
  }
  return absl::StrCat(
      all, ", trained: ",
      FormatCount(static_cast<double>(needs.trainable_parameters())));
}

std::string ValidationText(const Spec& spec) {
  const std::string files = FilesText(spec, "validation_dataset");
  if (!files.empty()) return files;
  const std::string split = Field(spec, "validation_split");
  if (split.empty() || split == "0" || split == "0.0") return "none";
  return split + " of the dataset";
}

std::string StepsText(const Spec& spec, const v1::JobNeeds& needs) {
  const std::string batch = absl::StrCat(
      "of ", Field(spec, "batch_size"),
      Field(spec, "packing") == "true" ? " packed rows" : " sequences");
  if (needs.steps() > 0) return absl::StrCat(needs.steps(), " ", batch);
  std::string epochs = Field(spec, "num_train_epochs");
  if (absl::EndsWith(epochs, ".0")) epochs.resize(epochs.size() - 2);
  return absl::StrCat(epochs, " epochs ", batch,
                      " a step; counted once the data are read");
}

void AddHostRows(const v1::JobNeeds& needs, Rows* rows) {
  const int64_t total = needs.host_base_bytes() + needs.host_state_bytes() +
                        needs.host_buffer_bytes() + needs.host_table_bytes();
  rows->push_back(
      {"host memory:", absl::StrCat(FormatBytes(total), " of ",
                                    FormatBytes(needs.host_limit_bytes()))});
  const auto add = [rows](const char* name, int64_t bytes) {
    if (bytes > 0) rows->push_back({name, FormatBytes(bytes)});
  };
  add("  frozen weights:", needs.host_base_bytes());
  add("  training state:", needs.host_state_bytes());
  add("  activations:", needs.host_buffer_bytes());
  add("  file tables:", needs.host_table_bytes());
}

std::string TimeText(const v1::JobNeeds& needs) {
  if (!needs.has_step_seconds()) {
    return "not known: no job like it has run here yet";
  }
  const std::string each =
      absl::StrFormat("%.3g s a step, measured in %s", needs.step_seconds(),
                      ShortName(needs.measured_in()));
  if (needs.steps() == 0) {
    return absl::StrCat(each, "; steps are known once the data are read");
  }
  const double seconds =
      needs.step_seconds() * static_cast<double>(needs.steps());
  return absl::StrCat(ClockText(absl::Seconds(seconds)), " for ", needs.steps(),
                      " steps (", each, ")");
}

void AddSpecRows(const Spec& spec, const v1::JobNeeds& needs, Rows* rows) {
  const auto add = [rows](const char* name, const std::string& text) {
    if (!text.empty()) rows->push_back({name, text});
  };
  const std::string rate = Field(spec, "learning_rate");
  add("model:", Field(spec, "model_name_or_path"));
  if (Field(spec, "model_init") == "random") {
    add("  weights:", "random, by the seed");
  }
  add("parameters:", ParametersText(needs));
  add("method:", MethodText(spec));
  add("dtype:", Field(spec, "dtype"));
  add("dataset:", FilesText(spec, "dataset"));
  add("  rows, tokens:", "not counted yet; roundhouse dataset validate does");
  add("validation:", ValidationText(spec));
  add("steps:", StepsText(spec, needs));
  add("max_length:", Field(spec, "max_length"));
  if (!rate.empty()) {
    add("learning rate:",
        absl::StrCat(rate, ", ", Field(spec, "lr_scheduler_type")));
  }
  add("output_name:", Field(spec, "output_name"));
}

void AddDiskRows(const v1::JobNeeds& needs, Rows* rows) {
  rows->push_back(
      {"disk:", absl::StrCat(FormatBytes(needs.disk_bytes()), " of ",
                             FormatBytes(needs.disk_free_bytes()), " free in ",
                             needs.disk_path())});
  rows->push_back(
      {"  checkpoints:", absl::StrCat(needs.checkpoint_count(), " of ",
                                      FormatBytes(needs.checkpoint_bytes()))});
  rows->push_back({"  result:", FormatBytes(needs.export_bytes())});
}

}  // namespace

std::string DryRunText(const nlohmann::ordered_json& spec,
                       const v1::JobNeeds& needs) {
  Rows rows;
  AddSpecRows(spec, needs, &rows);
  AddHostRows(needs, &rows);
  rows.push_back({"device memory:",
                  absl::StrCat(FormatBytes(needs.device_slot_bytes()), " of ",
                               FormatBytes(needs.device_limit_bytes()),
                               " for the largest slot, and its activations")});
  AddDiskRows(needs, &rows);
  rows.push_back({"training time:", TimeText(needs)});
  return FormatTable(rows);
}

}  // namespace roundhouse::client
