// bubble_table: what each schedule loses of a step, in virtual time.
//
//   bazel run //tests/bench:bubble_table -- [--inputs=FILE.csv]
//       [--devices=8] [--micro_batches=16] [--pcie_gbps=21] [--host_gbps=200]
//       [--format=table|csv] [--model=NAME] [--schedule=NAME] [--rules=NAME]
//       [--without=IDEA,...] [--fused=whole|by_layer] [--dump=FILE.csv]
//   ... --steps=10 [--rounds=1,4,8] [--mode=NAME] [--one_pass]
//                                                      consecutive steps
//
// docs/design/measurements.md explains rows and columns.  Exits 1 with a
// message on stderr when an input is wrong.

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/schedule.h"
#include "tests/bench/bubble_rows.h"
#include "tests/bench/steps_rows.h"
#include "tests/published/partitions.h"

ABSL_FLAG(std::string, inputs, "",
          "costs of the models, in the shape of bubble_inputs.csv; empty: that "
          "file");
ABSL_FLAG(std::string, devices, "8",
          "number of devices of 24 GiB, or a list such as "
          "4x24GiB,3x16GiB,1x24GiB@0.5");
ABSL_FLAG(int, micro_batches, 16, "micro-batches of the step");
ABSL_FLAG(double, pcie_gbps, 21, "rate of a link in each direction, GB/s");
ABSL_FLAG(double, host_gbps, 200, "rate of host memory, GB/s");
ABSL_FLAG(std::string, format, "table", "table (Markdown) or csv");
ABSL_FLAG(std::string, model, "", "only this model");
ABSL_FLAG(std::string, schedule, "", "only this schedule");
ABSL_FLAG(std::string, rules, "", "only these rules");
ABSL_FLAG(std::vector<std::string>, without, {},
          "rows of roundhouse without each of these: width, uneven, "
          "priorities, prefetch, per_layer");
ABSL_FLAG(std::string, fused, "whole",
          "of fused slots under transfers: micro-batches in one interval each, "
          "or by_layer, as workers compute them");
ABSL_FLAG(int, steps, 1,
          "more than 1: consecutive steps with the optimizer instead of an "
          "isolated one");
ABSL_FLAG(std::vector<std::string>, rounds, {"1"},
          "of --steps: rounds of accumulation in a step, a list");
ABSL_FLAG(std::string, mode, "",
          "of --steps: only synchronous, clipped or asynchronous");
ABSL_FLAG(bool, one_pass, false,
          "of --steps, of one round without clipping: reduction and update in "
          "one pass, modes one-pass and one-pass-asynchronous");
ABSL_FLAG(
    std::string, dump, "",
    "write every interval of the schedule that is left, or of one model's "
    "roundhouse under transfers, to this file");

namespace roundhouse::bench {
namespace {

// Where `bazel run` starts the program.
constexpr char kTestdata[] = "scheduler/testdata/";
constexpr double kMaxRate = 1e5;

// A path on the command line is relative to where the user is.
std::string UserPath(const std::string& path) {
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  if (directory == nullptr) return path;
  return std::filesystem::path(directory) / path;
}

absl::Status FileError(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  if (!file) return FileError(path);
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) return FileError(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ModelCosts>> ReadModels() {
  const std::string flag = absl::GetFlag(FLAGS_inputs);
  const std::string path = flag.empty()
                               ? absl::StrCat(kTestdata, "bubble_inputs.csv")
                               : UserPath(flag);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(std::vector<ModelCosts> models, ParseModelCosts(path, text));
  const std::string wanted = absl::GetFlag(FLAGS_model);
  if (wanted.empty()) return models;
  for (ModelCosts& model : models) {
    if (model.name == wanted) return std::vector{std::move(model)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--model: ", path, " has no \"", wanted, "\""));
}

absl::StatusOr<double> Rate(const char* flag, double value) {
  // Written so that a NaN is refused.
  if (value > 0 && value <= kMaxRate) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " must be more than 0 and at most ", kMaxRate));
}

absl::StatusOr<FusedSlots> Fused() {
  const std::string flag = absl::GetFlag(FLAGS_fused);
  if (flag == "whole") return FusedSlots::kWhole;
  if (flag == "by_layer") return FusedSlots::kByLayer;
  return absl::InvalidArgumentError(
      absl::StrCat("--fused: whole or by_layer, not \"", flag, "\""));
}

absl::StatusOr<BubbleOptions> ReadOptions() {
  BubbleOptions options;
  ASSIGN_OR_RETURN(options.fused, Fused());
  ASSIGN_OR_RETURN(options.machine.devices,
                   ParseDevices(absl::GetFlag(FLAGS_devices)));
  ASSIGN_OR_RETURN(options.machine.link_rate,
                   Rate("pcie_gbps", absl::GetFlag(FLAGS_pcie_gbps)));
  ASSIGN_OR_RETURN(options.machine.host_rate,
                   Rate("host_gbps", absl::GetFlag(FLAGS_host_gbps)));
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.schedule = absl::GetFlag(FLAGS_schedule);
  options.rules = absl::GetFlag(FLAGS_rules);
  options.without = absl::GetFlag(FLAGS_without);
  const std::string path = absl::StrCat(kTestdata, "published_partitions.csv");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(options.partitions, ParsePartitions(path, text));
  return options;
}

absl::StatusOr<StepsTableOptions> ReadStepsOptions(
    const BubbleOptions& bubbles) {
  StepsTableOptions options;
  options.machine = bubbles.machine;
  options.micro_batches = bubbles.micro_batches;
  options.fused = bubbles.fused;
  options.steps = absl::GetFlag(FLAGS_steps);
  options.mode = absl::GetFlag(FLAGS_mode);
  options.one_pass = absl::GetFlag(FLAGS_one_pass);
  options.keep_intervals = !absl::GetFlag(FLAGS_dump).empty();
  options.rounds.clear();
  for (const std::string& text : absl::GetFlag(FLAGS_rounds)) {
    int rounds = 0;
    if (!absl::SimpleAtoi(text, &rounds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rounds: \"", text, "\" is not a number"));
    }
    options.rounds.push_back(rounds);
  }
  return options;
}

// The schedule that --dump means: the only one, or of one model's ours.
const BubbleRow* RowToDump(const std::vector<BubbleRow>& rows) {
  if (rows.size() == 1) return &rows[0];
  const BubbleRow* ours = nullptr;
  for (const BubbleRow& row : rows) {
    if (row.schedule != "roundhouse" || row.rules != "transfers") continue;
    if (ours != nullptr) return nullptr;
    ours = &row;
  }
  return ours;
}

absl::Status Dump(const std::vector<BubbleRow>& rows) {
  const std::string path = absl::GetFlag(FLAGS_dump);
  if (path.empty()) return absl::OkStatus();
  const BubbleRow* row = RowToDump(rows);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dump writes one schedule, but ", rows.size(),
                     " are left: name it by --model, --schedule, --rules"));
  }
  return WriteFile(UserPath(path), ScheduleCsv(row->result));
}

absl::Status DumpSteps(const std::vector<StepsRow>& rows) {
  const std::string path = absl::GetFlag(FLAGS_dump);
  if (path.empty()) return absl::OkStatus();
  if (rows.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dump writes one schedule, but ", rows.size(),
                     " are left: name it by --model, --mode, --rounds"));
  }
  return WriteFile(UserPath(path), ScheduleCsv(rows[0].result));
}

// How many plans stood to choice, where they were searched.
template <typename Row>
void PrintPlans(const Row& row, const std::string& name) {
  if (row.ranked == 0) return;
  std::cerr << "bubble_table: " << row.model << ", " << name << ": "
            << row.ranked << " plans ranked, " << row.simulated
            << " simulated\n";
}

absl::Status RunBubbles(const std::vector<ModelCosts>& models,
                        const BubbleOptions& options, bool csv) {
  std::vector<BubbleRow> rows;
  for (const ModelCosts& model : models) {
    ASSIGN_OR_RETURN(BubbleTable table, BubbleRows(model, options));
    for (BubbleRow& row : table.rows) {
      PrintPlans(row, absl::StrCat(row.schedule, " under ", row.rules));
      rows.push_back(std::move(row));
    }
    for (const std::string& line : table.left_out) {
      std::cerr << "bubble_table: left out: " << line << "\n";
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        "no row has this --schedule and --rules on these --devices");
  }
  RETURN_IF_ERROR(Dump(rows));
  std::cout << (csv ? BubbleCsv(rows) : BubbleMarkdown(rows)) << std::flush;
  return absl::OkStatus();
}

absl::Status RunSteps(const std::vector<ModelCosts>& models,
                      const StepsTableOptions& options, bool csv) {
  std::vector<StepsRow> rows;
  for (const ModelCosts& model : models) {
    ASSIGN_OR_RETURN(std::vector<StepsRow> of_model, StepsRows(model, options));
    for (StepsRow& row : of_model) {
      PrintPlans(
          row, absl::StrCat(row.mode, ", ", row.rounds, " rounds, ", row.plan));
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        options.one_pass
            ? "--mode must be one-pass or one-pass-asynchronous"
            : "--mode must be synchronous, clipped or asynchronous");
  }
  RETURN_IF_ERROR(DumpSteps(rows));
  std::cout << (csv ? StepsCsv(rows) : StepsMarkdown(rows)) << std::flush;
  return absl::OkStatus();
}

absl::Status Run() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "csv") {
    return absl::InvalidArgumentError("--format must be table or csv");
  }
  ASSIGN_OR_RETURN(const std::vector<ModelCosts> models, ReadModels());
  ASSIGN_OR_RETURN(const BubbleOptions options, ReadOptions());
  if (absl::GetFlag(FLAGS_steps) == 1) {
    return RunBubbles(models, options, format == "csv");
  }
  ASSIGN_OR_RETURN(const StepsTableOptions steps, ReadStepsOptions(options));
  return RunSteps(models, steps, format == "csv");
}

}  // namespace
}  // namespace roundhouse::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = roundhouse::bench::Run();
  if (status.ok()) return 0;
  std::cerr << "bubble_table: " << status.message() << "\n";
  return 1;
}
