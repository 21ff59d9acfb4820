#include "client/dry_run.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/message_json.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

// What the spec says of the job itself; its fields' names, in the order of
// docs/job-spec.md.
constexpr const char* kSummary[] = {"model_name_or_path",
                                    "dataset",
                                    "validation_dataset",
                                    "method",
                                    "lora_r",
                                    "target_modules",
                                    "num_train_epochs",
                                    "max_steps",
                                    "batch_size",
                                    "max_length",
                                    "learning_rate",
                                    "dtype",
                                    "output_name"};

std::string HostText(const v1::JobNeeds& needs) {
  const int64_t total = needs.host_base_bytes() + needs.host_state_bytes() +
                        needs.host_buffer_bytes() + needs.host_table_bytes();
  const std::string base =
      needs.host_base_bytes() == 0
          ? ""
          : absl::StrCat("frozen weights ",
                         FormatBytes(needs.host_base_bytes()), ", ");
  return absl::StrCat(
      FormatBytes(total), " of ", FormatBytes(needs.host_limit_bytes()), " (",
      base, "training state ", FormatBytes(needs.host_state_bytes()),
      ", activations and tokens ", FormatBytes(needs.host_buffer_bytes()),
      ", file tables ", FormatBytes(needs.host_table_bytes()), ")");
}

std::string DiskText(const v1::JobNeeds& needs) {
  return absl::StrCat(
      FormatBytes(needs.disk_bytes()), " (checkpoints ",
      needs.checkpoint_count(), " x ", FormatBytes(needs.checkpoint_bytes()),
      ", result ", FormatBytes(needs.export_bytes()), "); ",
      FormatBytes(needs.disk_free_bytes()), " are free in ", needs.disk_path());
}

std::string EtaText(const v1::JobNeeds& needs) {
  if (!needs.has_step_seconds()) {
    return "not known: no job has trained this model on these data in this way";
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

}  // namespace

std::string SpecText(const nlohmann::ordered_json& spec) {
  std::vector<std::vector<std::string>> rows;
  for (const char* field : kSummary) {
    const auto found = spec.find(field);
    if (found == spec.end()) continue;
    const std::string text =
        found->is_string() ? found->get<std::string>() : JsonText(*found, -1);
    rows.push_back({absl::StrCat(field, ":"), text});
  }
  return rows.empty() ? "" : FormatTable(rows);
}

std::string NeedsText(const v1::JobNeeds& needs) {
  return FormatTable(
      {{"host memory:", HostText(needs)},
       {"device memory:",
        absl::StrCat(FormatBytes(needs.device_slot_bytes()), " of ",
                     FormatBytes(needs.device_limit_bytes()),
                     " in the largest slot, without activations")},
       {"disk:", DiskText(needs)},
       {"parameters:", absl::StrCat(needs.parameters(), ", trained ",
                                    needs.trainable_parameters())},
       {"training time:", EtaText(needs)}});
}

}  // namespace roundhouse::client
