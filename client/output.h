// How data looks on standard output: tables for people, JSON and names for
// scripts.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/system.pb.h"

namespace roundhouse::client {

enum class OutputFormat { kTable, kJson, kName };

// "table", "json", "name"; kInvalidArgument otherwise.
absl::StatusOr<OutputFormat> ParseOutputFormat(const std::string& text);

// Columns two blanks apart, each as wide as its widest cell; no blanks at the
// ends of lines.  Every row has as many cells as the first, the head.  A cell
// stays on its line and moves no cursor, whatever it holds
// (base/visible_text.h).
std::string FormatTable(const std::vector<std::vector<std::string>>& cells);

std::string JobTable(const std::vector<v1::FineTuningJob>& jobs,
                     absl::Time now);
// One job in full, a "key: value" line each, without the texts.
std::string JobText(const v1::FineTuningJob& job);
std::string DeviceTable(const std::vector<v1::Device>& devices);
// Its state, and who has it: "device 3 is LENT to anna until ...".
std::string DeviceLine(const v1::Device& device);

// What to say when a job has ended: one or more lines, each with its newline.
std::string FinalText(const v1::FineTuningJob& job);
// "REASON: message", either alone, or "".
std::string ReasonText(const v1::FineTuningJob& job);
// The state, and behind it in brackets what a table has no column for: a pause
// that keeps the memory, the share of the data that is read.
std::string StateText(const v1::FineTuningJob& job);
// Its class where that is not NORMAL, as job files have it, else "".
std::string ClassText(const v1::FineTuningJob& job);
// FineTuningJob.data_read from 0 to 1, whatever the wire says; "43 %", or "" of
// none.
double DataReadShare(double share);
std::string DataReadText(double share);

// The last component: "projects/default/fineTuningJobs/a1" -> "a1".
std::string ShortName(const std::string& name);
// "512 B", "1.5 GiB".
std::string FormatBytes(int64_t bytes);
// "0:07", "12:34", "1:02:03"; of negative durations "0:00".
std::string ClockText(absl::Duration duration);
// "950", "13.2k", "4.1M", "32.8B".
std::string FormatCount(double count);
// "1 step", "2 steps".
std::string CountText(int64_t count, const std::string& name);
// Four decimals; "nan" and "inf" by name.
std::string FormatLoss(double loss);
absl::Time TimeOf(const google::protobuf::Timestamp& timestamp);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_OUTPUT_H_
