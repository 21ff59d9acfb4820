#include "client/output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/text_width.h"
#include "base/visible_text.h"

namespace roundhouse::client {
namespace {

using Row = std::vector<std::string>;

std::string StepText(const v1::FineTuningJob& job) {
  return job.total_steps() == 0
             ? absl::StrCat(job.step())
             : absl::StrCat(job.step(), "/", job.total_steps());
}

std::string AgeText(absl::Duration age) {
  if (age < absl::Minutes(1)) {
    return absl::StrCat(std::max<int64_t>(0, absl::ToInt64Seconds(age)), "s");
  }
  if (age < absl::Hours(1)) {
    return absl::StrCat(absl::ToInt64Minutes(age), "m");
  }
  if (age < absl::Hours(48)) {
    return absl::StrCat(absl::ToInt64Hours(age), "h");
  }
  return absl::StrCat(absl::ToInt64Hours(age) / 24, "d");
}

std::string MemoryText(const v1::FineTuningJob& job) {
  switch (job.memory()) {
    case v1::KEPT:
      return "kept: it goes on where it was";
    case v1::GIVEN_BACK:
      return "given back: resumed, it goes on from its last checkpoint";
    default:
      return "";
  }
}

std::string EtaText(const v1::FineTuningJob& job, absl::Time now) {
  return job.has_eta() && job.state() == v1::RUNNING
             ? ClockText(TimeOf(job.eta()) - now)
             : "-";
}

std::string LossText(const v1::FineTuningJob& job) {
  return job.has_loss() ? FormatLoss(job.loss()) : "-";
}

std::string TimeText(bool present,
                     const google::protobuf::Timestamp& timestamp) {
  return present ? absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", TimeOf(timestamp),
                                    absl::UTCTimeZone())
                 : "";
}

std::string DatasetText(const v1::DatasetStats& dataset) {
  return absl::StrCat(CountText(dataset.train_sequences(), "sequence"), ", ",
                      CountText(dataset.train_tokens(), "token"), "; ",
                      dataset.train_truncated(), " truncated, ",
                      dataset.train_dropped(), " dropped");
}

std::string ValidationSetText(const v1::DatasetStats& dataset) {
  return dataset.validation_sequences() == 0
             ? ""
             : absl::StrCat(
                   CountText(dataset.validation_sequences(), "sequence"), ", ",
                   CountText(dataset.validation_tokens(), "token"));
}

std::string ExpertText(const v1::FineTuningJob& job) {
  if (!job.has_expert_load()) return "";
  const v1::ExpertLoad& load = job.expert_load();
  return absl::StrFormat(
      "the busiest has %.1f times the mean (layer %d); lowest entropy %.2f; %d "
      "without a token",
      load.max_over_mean(), load.layer(), load.entropy(), load.unhit_experts());
}

std::string EvalText(const v1::FineTuningJob& job) {
  Row parts;
  for (const v1::EvalPoint& point : job.eval_history()) {
    parts.push_back(
        absl::StrCat("step ", point.step(), " ", FormatLoss(point.loss())));
  }
  if (parts.size() > 4) {
    parts.erase(parts.begin() + 1, parts.end() - 3);
    parts[0] += " ...";
  }
  std::string text;
  for (const std::string& part : parts) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", part);
  }
  return text;
}

std::string ValidationText(const v1::FineTuningJob& job) {
  if (job.eval_history_size() < 2) {
    return "";
  }
  std::string text = absl::StrCat(
      ", validation loss ", FormatLoss(job.eval_history().begin()->loss()),
      " -> ", FormatLoss(job.eval_history().rbegin()->loss()));
  if (job.dataset().has_bigram_validation_loss()) {
    absl::StrAppend(&text, " (bigram model ",
                    FormatLoss(job.dataset().bigram_validation_loss()), ")");
  }
  return text;
}

std::string RunTimeText(const v1::FineTuningJob& job) {
  return job.has_start_time() && job.has_end_time()
             ? absl::StrCat(" in ", ClockText(TimeOf(job.end_time()) -
                                              TimeOf(job.start_time())))
             : "";
}

}  // namespace

absl::StatusOr<OutputFormat> ParseOutputFormat(const std::string& text) {
  if (text == "table") {
    return OutputFormat::kTable;
  }
  if (text == "json") {
    return OutputFormat::kJson;
  }
  if (text == "name") {
    return OutputFormat::kName;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --output: \"", text, "\" is none of table, json, name"));
}

std::string FormatTable(const std::vector<Row>& cells) {
  std::vector<Row> rows = cells;
  std::vector<size_t> widths;
  for (Row& row : rows) {
    ROUNDHOUSE_CHECK(row.size() == rows[0].size());
    std::transform(row.begin(), row.end(), row.begin(), VisibleLine);
    widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], TextWidth(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, PadWidth(row[i], widths[i] + 2));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string JobTable(const std::vector<v1::FineTuningJob>& jobs,
                     absl::Time now) {
  std::vector<Row> rows = {
      {"NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA", "AGE", "OUTPUT"}};
  // Said where it tells jobs apart.
  const bool owners = std::any_of(jobs.begin(), jobs.end(),
                                  [&jobs](const v1::FineTuningJob& job) {
                                    return job.owner() != jobs[0].owner();
                                  });
  const bool projects =
      std::any_of(jobs.begin(), jobs.end(), [](const v1::FineTuningJob& job) {
        return !job.project().empty() && job.project() != "default";
      });
  const bool classes = std::any_of(
      jobs.begin(), jobs.end(),
      [](const v1::FineTuningJob& job) { return !ClassText(job).empty(); });
  if (classes) rows[0].push_back("PRIORITY");
  if (owners) rows[0].push_back("OWNER");
  if (projects) rows[0].push_back("PROJECT");
  for (const v1::FineTuningJob& job : jobs) {
    rows.push_back(
        {ShortName(job.name()), StateText(job), StepText(job), LossText(job),
         job.tokens_per_second() > 0 ? FormatCount(job.tokens_per_second())
                                     : "-",
         EtaText(job, now), AgeText(now - TimeOf(job.create_time())),
         job.output_name().empty() ? "-" : job.output_name()});
    if (classes) {
      const std::string text = ClassText(job);
      rows.back().push_back(text.empty() ? "-" : text);
    }
    if (owners) rows.back().push_back(job.owner());
    if (projects) rows.back().push_back(job.project());
  }
  return FormatTable(rows);
}

std::string JobText(const v1::FineTuningJob& job) {
  std::vector<Row> rows = {
      {"name:", job.name()},
      {"owner:", job.owner()},
      {"project:", job.project() == "default" ? "" : job.project()},
      {"state:", v1::JobState_Name(job.state())},
      {"reason:", ReasonText(job)},
      {"priority:", ClassText(job)},
      {"memory:", MemoryText(job)},
      {"data read:", DataReadText(job.data_read())},
      {"step:", StepText(job)},
      {"epoch:", absl::StrFormat("%.2f", job.epoch())},
      {"loss:", job.has_loss() ? FormatLoss(job.loss()) : ""},
      {"validation loss:", EvalText(job)},
      {"bigram loss:", job.dataset().has_bigram_validation_loss()
                           ? FormatLoss(job.dataset().bigram_validation_loss())
                           : ""},
      {"tokens/s:",
       job.tokens_per_second() > 0 ? FormatCount(job.tokens_per_second()) : ""},
      {"experts:", ExpertText(job)},
      {"dataset:", job.has_dataset() ? DatasetText(job.dataset()) : ""},
      {"validation set:", ValidationSetText(job.dataset())},
      {"created:", TimeText(job.has_create_time(), job.create_time())},
      {"started:", TimeText(job.has_start_time(), job.start_time())},
      {"ended:", TimeText(job.has_end_time(), job.end_time())},
      {"output:", job.output_path()},
      {"last checkpoint:", job.last_checkpoint_path()}};
  for (const v1::JobDeviceUse& use : job.device_use()) {
    rows.push_back({absl::StrCat("device ", use.device(), ":"),
                    absl::StrFormat("compute %.1f s, bubble %.1f s (%.1f %%)",
                                    use.compute_seconds(), use.bubble_seconds(),
                                    100 * use.bubble_ratio())});
  }
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [](const Row& row) { return row[1].empty(); }),
             rows.end());
  return FormatTable(rows);
}

namespace {

// "python3 (process 4711 of uid:1000)".
std::string ProcessText(const v1::DeviceLoan& loan) {
  const std::string owner = VisibleLine(loan.owner());
  const std::string id =
      absl::StrCat("process ", loan.process().pid(),
                   owner.empty() ? "" : absl::StrCat(" of ", owner));
  const std::string& command = loan.process().command();
  return command.empty() ? id
                         : absl::StrCat(VisibleLine(command), " (", id, ")");
}

std::string LoanText(const v1::DeviceLoan& loan) {
  if (loan.has_process()) return ProcessText(loan);
  std::string text = VisibleLine(loan.owner());
  if (loan.has_until_time()) {
    absl::StrAppend(
        &text, " until ",
        absl::FormatTime("%Y-%m-%d %H:%M UTC",
                         absl::FromUnixSeconds(loan.until_time().seconds()),
                         absl::UTCTimeZone()));
  }
  if (!loan.note().empty()) {
    absl::StrAppend(&text, " (", VisibleLine(loan.note()), ")");
  }
  return text;
}

}  // namespace

std::string DeviceLine(const v1::Device& device) {
  const std::string loan =
      device.has_loan() ? LoanText(device.loan()) : std::string();
  const bool lent = device.state() == v1::LENT;
  const bool yielded = device.state() == v1::YIELDED;
  return absl::StrCat("device ", device.index(), " is ",
                      v1::DeviceState_Name(device.state()),
                      loan.empty()      ? ""
                      : lent || yielded ? " to "
                                        : " by ",
                      loan, lent ? "; its memory is free\n" : "\n");
}

std::string DeviceTable(const std::vector<v1::Device>& devices) {
  std::vector<Row> rows = {{"DEVICE", "KIND", "STATE", "MEMORY", "BUBBLE",
                            "COMPUTE", "H2D", "D2H", "SLOTS", "RESTARTS",
                            "JOB"}};
  const bool gpus = std::any_of(
      devices.begin(), devices.end(),
      [](const v1::Device& device) { return !device.product_name().empty(); });
  const bool lent =
      std::any_of(devices.begin(), devices.end(),
                  [](const v1::Device& device) { return device.has_loan(); });
  if (lent) rows.back().push_back("WHO HAS IT");
  if (gpus) rows.back().push_back("GPU");
  for (const v1::Device& device : devices) {
    rows.push_back(
        {absl::StrCat(device.index()), device.kind(),
         v1::DeviceState_Name(device.state()),
         // Known once a slot is done.
         absl::StrCat(device.memory_used_bytes() > 0
                          ? FormatBytes(device.memory_used_bytes())
                          : "-",
                      " of ", FormatBytes(device.memory_limit_bytes())),
         device.compute_seconds() + device.bubble_seconds() > 0
             ? absl::StrFormat("%.1f%%", 100 * device.bubble_ratio())
             : "-",
         absl::StrFormat("%.1f s", device.compute_seconds()),
         FormatBytes(device.h2d_bytes()), FormatBytes(device.d2h_bytes()),
         absl::StrCat(device.slots()), absl::StrCat(device.worker_restarts()),
         device.job().empty() ? "-" : ShortName(device.job())});
    if (lent) {
      rows.back().push_back(device.has_loan() ? LoanText(device.loan()) : "-");
    }
    if (gpus) rows.back().push_back(device.product_name());
  }
  return FormatTable(rows);
}

std::string FinalText(const v1::FineTuningJob& job) {
  const std::string name = VisibleLine(ShortName(job.name()));
  std::string text;
  if (job.state() == v1::SUCCEEDED) {
    text = absl::StrCat(name, " succeeded: ", CountText(job.step(), "step"),
                        RunTimeText(job), ValidationText(job), "\n");
    if (!job.output_path().empty()) {
      absl::StrAppend(&text, "output: ", VisibleLine(job.output_path()), "\n");
    }
    return text;
  }
  const std::string reason = VisibleLine(ReasonText(job));
  text = absl::StrCat(
      name, job.state() == v1::FAILED ? " failed" : " was cancelled",
      " at step ", job.step(), reason.empty() ? "" : ": ", reason, "\n");
  if (!job.last_checkpoint_path().empty()) {
    absl::StrAppend(&text, "last checkpoint: ",
                    VisibleLine(job.last_checkpoint_path()), "\n");
  }
  return text;
}

std::string ReasonText(const v1::FineTuningJob& job) {
  if (job.reason() == v1::JOB_REASON_UNSPECIFIED) {
    return job.message();
  }
  return absl::StrCat(v1::JobReason_Name(job.reason()),
                      job.message().empty() ? "" : ": ", job.message());
}

std::string StateText(const v1::FineTuningJob& job) {
  const std::string read = DataReadText(job.data_read());
  return absl::StrCat(v1::JobState_Name(job.state()),
                      job.memory() == v1::KEPT ? " (memory kept)" : "",
                      read.empty() ? "" : " (data read: ", read,
                      read.empty() ? "" : ")");
}

std::string ClassText(const v1::FineTuningJob& job) {
  return job.priority() == v1::NORMAL ||
                 job.priority() == v1::JOB_PRIORITY_UNSPECIFIED
             ? ""
             : absl::AsciiStrToLower(v1::JobPriority_Name(job.priority()));
}

double DataReadShare(double share) {
  // Not a number is no share either.
  return share > 0 ? std::min(share, 1.0) : 0.0;
}

std::string DataReadText(double share) {
  const double read = DataReadShare(share);
  return read > 0 ? absl::StrCat(std::floor(100 * read), " %") : "";
}

std::string CountText(int64_t count, const std::string& name) {
  return absl::StrCat(count, " ", name, count == 1 ? "" : "s");
}

std::string ShortName(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return absl::StrCat(bytes, " B");
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string ClockText(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  const int64_t hours = seconds / 3600;
  const int64_t minutes = seconds / 60 % 60;
  return hours > 0
             ? absl::StrFormat("%d:%02d:%02d", hours, minutes, seconds % 60)
             : absl::StrFormat("%d:%02d", minutes, seconds % 60);
}

std::string FormatCount(double count) {
  if (count < 999.5) {
    return absl::StrFormat("%.0f", count);
  }
  if (count < 999'950) {
    return absl::StrFormat("%.1fk", count / 1e3);
  }
  return count < 999'950'000 ? absl::StrFormat("%.1fM", count / 1e6)
                             : absl::StrFormat("%.1fB", count / 1e9);
}

std::string FormatLoss(double loss) { return absl::StrFormat("%.4f", loss); }

absl::Time TimeOf(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) +
         absl::Nanoseconds(timestamp.nanos());
}

}  // namespace roundhouse::client
