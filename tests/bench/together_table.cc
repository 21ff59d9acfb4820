// together_table: two jobs on one server in virtual time, beside the same two
// one after the other.
//
//   bazel run //tests/bench:together_table
//
// docs/design/measurements.md explains the columns.

#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/search/jobs_together.h"
#include "tests/bench/costs_file.h"

namespace roundhouse::bench {
namespace {

constexpr int kDevices = 8;

absl::StatusOr<ModelCosts> ReadModel(const std::string& file,
                                     const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<ModelCosts> models, ReadCostsFile(file));
  for (const ModelCosts& model : models) {
    if (model.name == name) return model;
  }
  return absl::NotFoundError(absl::StrCat(file, " has no \"", name, "\""));
}

absl::Status PrintRow(const TogetherJob& first, const TogetherJob& second,
                      Updates updates) {
  TogetherOptions options;
  options.machine.devices.resize(kDevices);
  options.updates = updates;
  ASSIGN_OR_RETURN(const Together both,
                   SimulateTogether(first, second, options));
  std::cout << absl::StrFormat(
      "| %s | %s | %.1f | %.1f | %.2f | %.3f | %.1f | %g ms |\n",
      first.costs.name, updates == Updates::kClipped ? "yes" : "no",
      both.first_alone_ns * 1e-6, both.first_ns * 1e-6,
      100 * (both.first_ns / both.first_alone_ns - 1), both.goodput,
      both.ready_idle_percent, 1e-6 * static_cast<double>(both.grace_ns));
  std::cerr << "together_table: beside " << first.costs.name << ": "
            << ToString(both.second_plan) << "\n";
  return absl::OkStatus();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const ModelCosts dense,
                   ReadModel("derived_inputs.csv", "llama3.1-8b-1seq"));
  ASSIGN_OR_RETURN(const ModelCosts mixture,
                   ReadModel("bubble_inputs.csv", "qwen3-235b"));
  ASSIGN_OR_RETURN(const ModelCosts lora,
                   ReadModel("derived_inputs.csv", "qwen3-1.7b-lora"));
  std::cout
      << "| first job | clipping | alone, ms | together, ms | longer, % | "
         "goodput | idle, % | grace |\n"
         "|---|---|---:|---:|---:|---:|---:|---:|\n";
  for (const Updates updates : {Updates::kAsReduced, Updates::kClipped}) {
    RETURN_IF_ERROR(PrintRow({dense, 8, 1}, {lora, 32, 2}, updates));
    RETURN_IF_ERROR(PrintRow({mixture, 4, 1}, {lora, 32, 2}, updates));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::bench

int main() {
  return roundhouse::bench::ExitStatus("together_table",
                                       roundhouse::bench::Run());
}
