#include "client/tables/plan_output.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/output.h"
#include "client/tables/short_memory.h"

namespace roundhouse::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string Percent(double part, double whole) {
  return absl::StrFormat("%.2f%%", whole > 0 ? 100 * part / whole : 0);
}

std::string ParameterText(int64_t count) {
  const auto number = static_cast<double>(count);
  return number < 1e9 ? FormatCount(number)
                      : absl::StrFormat("%.2fB", number / 1e9);
}

std::string ModelText(const v1::PlanTrainingResponse& plan) {
  std::string text = absl::StrCat(
      plan.family(), ", ", ParameterText(plan.parameters()), " parameters, ");
  if (plan.trained_parameters() == plan.parameters()) {
    absl::StrAppend(&text, "all trained");
  } else {
    absl::StrAppend(&text, ParameterText(plan.trained_parameters()),
                    " trained");
  }
  if (!plan.trainable()) {
    absl::StrAppend(&text, " (planned only: this server can't train it)");
  }
  return text;
}

std::string SourceText(const v1::DeviceSource& source) {
  return absl::StrFormat("%s: %g TFLOP/s, %g GB/s a link (%s)", source.kind(),
                         source.tflops(), source.link_rate(), source.source());
}

std::string FeasibleText(const v1::PlanTrainingResponse& plan) {
  if (plan.feasible()) return "yes";
  std::vector<std::string> missing;
  if (plan.device_missing_bytes() > 0) {
    missing.push_back(absl::StrCat(FormatBytes(plan.device_missing_bytes()),
                                   " of device memory (",
                                   plan.device_missing_bytes(),
                                   " bytes) are missing: the smallest plan "
                                   "needs ",
                                   FormatBytes(plan.device_needed_bytes())));
  }
  if (plan.host_missing_bytes() > 0) {
    missing.push_back(absl::StrCat(
        FormatBytes(plan.host_missing_bytes()), " of host memory (",
        plan.host_missing_bytes(), " bytes) are missing"));
  }
  return absl::StrCat("no: ", absl::StrJoin(missing, "; "));
}

std::string HostText(const v1::PlannedHost& host, int64_t limit_bytes) {
  std::string text = FormatBytes(host.total_bytes());
  if (limit_bytes > 0) absl::StrAppend(&text, " of ", FormatBytes(limit_bytes));
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, int64_t bytes) {
    if (bytes > 0) parts.push_back(absl::StrCat(name, " ", FormatBytes(bytes)));
  };
  add("frozen weights", host.base_bytes());
  add("training state", host.state_bytes());
  add("between stages", host.boundary_bytes());
  add("gradients in flight", host.contribution_bytes());
  return absl::StrCat(text, ": ", absl::StrJoin(parts, ", "));
}

std::string LongestText(const v1::PlanTrainingResponse& plan) {
  std::string text = absl::StrCat(plan.longest_sequence(), " tokens");
  switch (plan.longest_sequence_limit()) {
    case v1::SEQUENCE_LIMIT_DEVICE_MEMORY:
      absl::StrAppend(&text, ", then device memory ends");
      break;
    case v1::SEQUENCE_LIMIT_HOST_MEMORY:
      absl::StrAppend(&text, ", then host memory ends");
      break;
    default:
      absl::StrAppend(&text, " or more");
  }
  if (plan.longest_sequence() > plan.max_position_tokens()) {
    absl::StrAppend(&text, " (the model has positions for ",
                    plan.max_position_tokens(), ")");
  }
  return text;
}

// Equal stages in a row as one: "[0,60] in 61 x1" for 61 of one layer each.
// What is no plan is left as it is.
std::string ShortPlan(const std::string& plan) {
  struct Run {
    int first = 0, last = 0, length = 0, count = 0;
    std::string width;
  };
  std::string text;
  Run run;
  const auto flush = [&text, &run] {
    if (run.count == 0) return;
    absl::StrAppend(&text, " [", run.first, ",", run.last, "]");
    if (run.count > 1) absl::StrAppend(&text, " in ", run.count);
    absl::StrAppend(&text, " ", run.width);
    run = Run();
  };
  const std::vector<std::string> words = absl::StrSplit(plan, ' ');
  for (size_t i = 0; i < words.size(); ++i) {
    Run stage;
    if (std::sscanf(words[i].c_str(), "[%d,%d]", &stage.first, &stage.last) !=
            2 ||
        i + 1 == words.size()) {
      flush();
      absl::StrAppend(&text, text.empty() ? "" : " ", words[i]);
      continue;
    }
    stage.length = stage.last - stage.first;
    stage.width = words[++i];
    if (run.count == 0 || run.length != stage.length ||
        run.width != stage.width) {
      flush();
      run = stage;
    }
    run.first = std::min(run.first, stage.first);
    run.last = std::max(run.last, stage.last);
    ++run.count;
  }
  flush();
  return text;
}

void AddBubble(const v1::BubbleSeconds& bubble, double whole, Rows* rows) {
  rows->push_back(
      {"  fill and drain:", Percent(bubble.fill_and_drain(), whole)});
  rows->push_back({"  for weights:", Percent(bubble.weights(), whole)});
  rows->push_back({"  for gradients:", Percent(bubble.gradients(), whole)});
  rows->push_back({"  end of step:", Percent(bubble.end_of_step(), whole)});
}

void AddStep(const v1::PlanTrainingResponse& plan, Rows* rows) {
  rows->push_back(
      {"step:", absl::StrFormat("%.3f s, %d tokens", plan.step_seconds(),
                                plan.tokens_per_step())});
  rows->push_back(
      {"tokens/s:", absl::StrFormat("%.0f", plan.tokens_per_second())});
  rows->push_back({"bubble:", Percent(plan.bubble_ratio(), 1)});
  AddBubble(plan.bubble(), plan.step_seconds() * plan.devices_size(), rows);
}

std::string DeviceRows(const v1::PlanTrainingResponse& plan) {
  Rows rows = {{"DEVICE", "KIND", "MEMORY", "OF", "COMPUTE", "FILL/DRAIN",
                "WEIGHTS", "GRADIENTS", "END"}};
  const double step = plan.step_seconds();
  for (const v1::PlannedDevice& device : plan.devices()) {
    const v1::BubbleSeconds& bubble = device.bubble();
    rows.push_back(
        {absl::StrCat(device.index()), device.kind(),
         FormatBytes(device.used_bytes()), FormatBytes(device.memory_bytes()),
         Percent(device.compute_seconds(), step),
         Percent(bubble.fill_and_drain(), step),
         Percent(bubble.weights(), step), Percent(bubble.gradients(), step),
         Percent(bubble.end_of_step(), step)});
  }
  return FormatTable(rows);
}

}  // namespace

std::string PlanText(const v1::PlanTrainingResponse& plan,
                     int64_t host_memory_bytes) {
  Rows rows = {{"model:", ModelText(plan)}};
  for (const v1::DeviceSource& source : plan.sources()) {
    rows.push_back({"device:", SourceText(source)});
  }
  rows.push_back({"fits:", FeasibleText(plan)});
  rows.push_back(
      {"micro-batches:",
       absl::StrCat(plan.micro_batches(), " of ",
                    CountText(plan.micro_batch_size(), "sequence"), ", ",
                    plan.micro_batches_per_round(), " a round")});
  const bool planned = plan.devices_size() > 0;
  if (planned) AddStep(plan, &rows);
  rows.push_back({"host memory:", HostText(plan.host(), host_memory_bytes)});
  const v1::PlannedHost& host = plan.host();
  for (auto& row : ShortMemoryRows(
           plan.backward_inputs(), plan.saved_inputs(), host.boundary_bytes(),
           planned ? host.wanted_boundary_bytes() : 0)) {
    rows.push_back(std::move(row));
  }
  rows.push_back({"longest sequence:", LongestText(plan)});
  if (!planned) return FormatTable(rows);
  rows.push_back({"plan:", ShortPlan(plan.plan())});
  return absl::StrCat(FormatTable(rows), "\n", DeviceRows(plan));
}

}  // namespace roundhouse::client
