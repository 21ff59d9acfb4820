#include "client/tables/dry_run.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/text_width.h"
#include "client/output.h"
#include "client/tables/message_json.h"
#include "client/tables/short_memory.h"

namespace roundhouse::client {
namespace {

using Spec = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kColumns = 80;
// Lines with names of files, which are never broken.
constexpr const char* kNameRows[] = {
    "model:", "dataset:", "validation:", "disk:", "output_name:"};

// How many steps a job has.
struct StepCount {
  int64_t steps = 0;  // 0: not known
  bool at_most = false;
};

double Number(const Spec& spec, const char* name) {
  const auto found = spec.find(name);
  return found != spec.end() && found->is_number() ? found->get<double>() : 0;
}

// Rows that are held out, dropped or packed make fewer steps; split ones more.
StepCount StepsOf(const Spec& spec, const v1::JobNeeds& needs) {
  constexpr double kMost = 1e15;
  if (needs.steps() > 0) return {needs.steps(), false};
  const auto truncation = spec.find("truncation");
  const double batch = Number(spec, "batch_size");
  const double epochs = Number(spec, "num_train_epochs");
  if (needs.dataset_rows() <= 0 || batch < 1 || !(epochs > 0) ||
      (truncation != spec.end() && *truncation == "split")) {
    return {};
  }
  const double steps = std::ceil(
      epochs * std::ceil(static_cast<double>(needs.dataset_rows()) / batch));
  if (!(steps <= kMost)) return {};
  return {std::max<int64_t>(1, static_cast<int64_t>(steps)), true};
}

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
  const std::string size = Field(spec, "batch_size");
  const std::string batch = absl::StrCat(
      "of ", size,
      Field(spec, "packing") == "true" ? " packed row" : " sequence",
      size == "1" ? "" : "s");
  const StepCount count = StepsOf(spec, needs);
  if (count.steps > 0 && !count.at_most) {
    return absl::StrCat(count.steps, " ", batch);
  }
  std::string epochs = Field(spec, "num_train_epochs");
  if (absl::EndsWith(epochs, ".0")) epochs.resize(epochs.size() - 2);
  absl::StrAppend(&epochs, epochs == "1" ? " epoch" : " epochs");
  return count.at_most
             ? absl::StrCat("at most ", count.steps, " ", batch, " (", epochs,
                            ")")
             : absl::StrCat(epochs, " ", batch,
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
  for (auto& row : ShortMemoryRows(
           needs.backward_inputs(), needs.saved_inputs(),
           needs.host_buffer_bytes(), needs.host_wanted_buffer_bytes())) {
    rows->push_back(std::move(row));
  }
  add("  file tables:", needs.host_table_bytes());
}

std::string RowsText(const v1::JobNeeds& needs) {
  return needs.dataset_rows() > 0
             ? absl::StrCat(needs.dataset_rows(),
                            "; roundhouse dataset validate counts tokens")
             : "not counted yet; roundhouse dataset validate does";
}

std::string TimeText(const StepCount& count, const v1::JobNeeds& needs) {
  if (!needs.has_step_seconds()) {
    return "not known: no job like it has run here yet";
  }
  const std::string each =
      absl::StrFormat("%.3g s a step, measured in %s", needs.step_seconds(),
                      ShortName(needs.measured_in()));
  if (count.steps == 0) {
    return absl::StrCat(each, "; steps are known once the data are read");
  }
  const double seconds =
      needs.step_seconds() * static_cast<double>(count.steps);
  return absl::StrCat(count.at_most ? "at most " : "",
                      ClockText(absl::Seconds(seconds)), " for ",
                      CountText(count.steps, "step"), " (", each, ")");
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
  add("  rows:", RowsText(needs));
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

// Values that are too long go on below themselves.
Rows Wrapped(const Rows& rows) {
  size_t left = 0;
  for (const auto& row : rows) left = std::max(left, row[0].size() + 2);
  Rows wrapped;
  for (const auto& row : rows) {
    if (std::find(std::begin(kNameRows), std::end(kNameRows), row[0]) !=
        std::end(kNameRows)) {
      wrapped.push_back(row);
      continue;
    }
    std::string name = row[0];
    for (const std::string& line : WrapText(row[1], kColumns - left)) {
      wrapped.push_back({name, line});
      name.clear();
    }
  }
  return wrapped;
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
  rows.push_back({"training time:", TimeText(StepsOf(spec, needs), needs)});
  return FormatTable(Wrapped(rows));
}

}  // namespace roundhouse::client
