// bubble_table: what each schedule loses of a step, in virtual time.
//
//   bazel run //tests/bench:bubble_table -- [--inputs=FILE.csv]
//       [--devices=8] [--micro_batches=16] [--pcie_gbps=21] [--host_gbps=200]
//       [--format=table|csv] [--model=NAME] [--schedule=NAME] [--rules=NAME]
//       [--dump=FILE.csv]
//
// docs/benchmarks.md explains rows and columns.  Exits 1 with a message on
// stderr when an input is wrong.

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
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/simulate/machine.h"
#include "scheduler/simulate/model_costs.h"
#include "scheduler/simulate/partitions.h"
#include "scheduler/simulate/schedule.h"
#include "tests/bench/bubble_rows.h"

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

absl::StatusOr<BubbleOptions> ReadOptions() {
  BubbleOptions options;
  ASSIGN_OR_RETURN(options.machine.devices,
                   ParseDevices(absl::GetFlag(FLAGS_devices)));
  ASSIGN_OR_RETURN(options.machine.link_rate,
                   Rate("pcie_gbps", absl::GetFlag(FLAGS_pcie_gbps)));
  ASSIGN_OR_RETURN(options.machine.host_rate,
                   Rate("host_gbps", absl::GetFlag(FLAGS_host_gbps)));
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.schedule = absl::GetFlag(FLAGS_schedule);
  options.rules = absl::GetFlag(FLAGS_rules);
  const std::string path = absl::StrCat(kTestdata, "published_partitions.csv");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(options.partitions, ParsePartitions(path, text));
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

absl::Status Run() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "csv") {
    return absl::InvalidArgumentError("--format must be table or csv");
  }
  ASSIGN_OR_RETURN(const std::vector<ModelCosts> models, ReadModels());
  ASSIGN_OR_RETURN(const BubbleOptions options, ReadOptions());
  std::vector<BubbleRow> rows;
  for (const ModelCosts& model : models) {
    ASSIGN_OR_RETURN(BubbleTable table, BubbleRows(model, options));
    for (BubbleRow& row : table.rows) rows.push_back(std::move(row));
    for (const std::string& line : table.left_out) {
      std::cerr << "bubble_table: left out: " << line << "\n";
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        "no row has this --schedule and --rules on these --devices");
  }
  RETURN_IF_ERROR(Dump(rows));
  std::cout << (format == "csv" ? BubbleCsv(rows) : BubbleMarkdown(rows))
            << std::flush;
  return absl::OkStatus();
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
