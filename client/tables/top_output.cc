#include "client/tables/top_output.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text_width.h"
#include "client/output.h"
#include "client/shares.h"

namespace roundhouse::client {
namespace {

// Causes of one device's bubbles that are named, the largest first.
constexpr size_t kMaxCauses = 3;

// `part` of something has rounded to `percent`.
std::string PercentText(double part, int percent) {
  return part > 0 && percent == 0 ? "<1%" : absl::StrCat(percent, "%");
}

std::string Rate(int64_t bytes, double seconds) {
  if (seconds <= 0) return "-";
  return absl::StrCat(
      FormatBytes(std::llround(static_cast<double>(bytes) / seconds)), "/s");
}

const v1::Device* Find(const std::vector<v1::Device>& devices, int index) {
  for (const v1::Device& device : devices) {
    if (device.index() == index) return &device;
  }
  return nullptr;
}

struct Cause {
  std::string name;
  double seconds = 0;
};

// Why the device waited between the looks, the longest cause first.  A wait
// gets its cause when it ends: causes of waits that began before the first look
// are scaled down, and what has none yet is one of its own.
std::vector<Cause> Causes(const v1::Device& before, const v1::Device& after,
                          double bubble_seconds) {
  std::map<std::string, double> spent;
  for (const v1::BubbleCause& cause : after.bubble_causes()) {
    spent[cause.cause()] += cause.seconds();
  }
  for (const v1::BubbleCause& cause : before.bubble_causes()) {
    spent[cause.cause()] -= cause.seconds();
  }
  std::vector<Cause> causes;
  double known = 0;
  for (const auto& [name, seconds] : spent) {
    if (seconds <= 0) continue;
    causes.push_back({name, seconds});
    known += seconds;
  }
  std::stable_sort(
      causes.begin(), causes.end(),
      [](const Cause& a, const Cause& b) { return a.seconds > b.seconds; });
  if (causes.size() > kMaxCauses) {
    Cause others{"others"};
    for (size_t i = kMaxCauses; i < causes.size(); ++i) {
      others.seconds += causes[i].seconds;
    }
    causes.resize(kMaxCauses);
    causes.push_back(others);
  }
  for (Cause& cause : causes) {
    cause.seconds *= std::min(1.0, bubble_seconds / known);
  }
  causes.push_back({"not known yet", std::max(0.0, bubble_seconds - known)});
  return causes;
}

// "dependency 12%, h2d_wait 5%", which sum to `percent`.
std::string CausesText(const std::vector<Cause>& causes, int percent) {
  std::vector<double> seconds;
  for (const Cause& cause : causes) seconds.push_back(cause.seconds);
  const std::vector<int> shares = WholePercents(seconds, percent);
  std::vector<std::string> parts;
  for (size_t i = 0; i < causes.size(); ++i) {
    if (shares[i] == 0) continue;
    parts.push_back(absl::StrCat(causes[i].name, " ", shares[i], "%"));
  }
  return absl::StrJoin(parts, ", ");
}

// Shares are of the time that the server has accounted between the looks, which
// is not the time that passed here: it tells computations when they end.
std::vector<std::string> DeviceRow(const v1::Device& before,
                                   const v1::Device& after, double seconds) {
  const double compute = after.compute_seconds() - before.compute_seconds();
  const double bubble = after.bubble_seconds() - before.bubble_seconds();
  const std::vector<double> parts = {
      compute, bubble, after.idle_seconds() - before.idle_seconds(),
      after.fenced_seconds() - before.fenced_seconds()};
  const std::vector<int> shares = WholePercents(parts, 100);
  const bool known = std::accumulate(shares.begin(), shares.end(), 0) > 0;
  return {std::to_string(after.index()),
          v1::DeviceState_Name(after.state()),
          known ? PercentText(compute, shares[0]) : "-",
          known ? PercentText(bubble, shares[1]) : "-",
          Rate(after.h2d_bytes() - before.h2d_bytes(), seconds),
          Rate(after.d2h_bytes() - before.d2h_bytes(), seconds),
          ShortName(after.job()),
          known ? CausesText(Causes(before, after, bubble), shares[1]) : ""};
}

std::vector<std::string> JobRow(const v1::FineTuningJob& job, absl::Time now) {
  const bool steps = job.step() > 0;
  return {
      ShortName(job.name()),
      StateText(job),
      job.total_steps() > 0 ? absl::StrCat(job.step(), "/", job.total_steps())
                            : "",
      steps ? FormatLoss(job.loss()) : "",
      job.tokens_per_second() > 0 ? FormatCount(job.tokens_per_second()) : "",
      job.has_eta() ? ClockText(TimeOf(job.eta()) - now) : ""};
}

// A list that is too wide loses whole entries, the last first, and says so:
// "optimizer 20%, ...".  The first entry stays.
std::string CutList(const std::string& list, size_t columns) {
  std::vector<std::string> entries = absl::StrSplit(list, ", ");
  std::string cut = list;
  while (TextWidth(cut) > columns && entries.size() > 1) {
    entries.pop_back();
    cut = absl::StrCat(absl::StrJoin(entries, ", "), ", ...");
  }
  return cut;
}

// The devices' table, whose last column is a list that fits `columns`.
std::string DeviceText(std::vector<std::vector<std::string>> rows,
                       size_t columns) {
  // The last column begins where its head does, which is never cut.
  std::vector<std::vector<std::string>> others = rows;
  for (size_t i = 1; i < others.size(); ++i) others[i].back().clear();
  const std::string table = FormatTable(others);
  const size_t before =
      TextWidth(table.substr(0, table.find('\n'))) - TextWidth(rows[0].back());
  for (std::vector<std::string>& row : rows) {
    row.back() = CutList(row.back(), columns - std::min(columns, before));
  }
  return FormatTable(rows);
}

std::string Cut(const std::string& text, size_t columns) {
  std::string out;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    absl::StrAppend(&out, FitWidth(line, columns), "\n");
  }
  out.pop_back();  // the one that stands for what follows the last newline
  return out;
}

}  // namespace

std::string TopText(const TopLook& before, const TopLook& after,
                    std::optional<int> columns) {
  const size_t width = columns.has_value()
                           ? static_cast<size_t>(std::max(1, *columns))
                           : std::numeric_limits<size_t>::max();
  const double seconds = absl::ToDoubleSeconds(after.time - before.time);
  std::vector<std::vector<std::string>> devices = {
      {"DEVICE", "STATE", "BUSY", "BUBBLE", "H2D", "D2H", "JOB", "WAITS FOR"}};
  for (const v1::Device& device : after.devices) {
    const v1::Device* const old = Find(before.devices, device.index());
    devices.push_back(DeviceRow(old == nullptr ? device : *old, device,
                                old == nullptr ? 0 : seconds));
  }
  std::vector<std::vector<std::string>> jobs = {
      {"JOB", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA"}};
  for (const v1::FineTuningJob& job : after.jobs) {
    jobs.push_back(JobRow(job, after.time));
  }
  const v1::Server& server = after.server;
  const std::string text = absl::StrCat(
      server.running_jobs(), " running, ", server.queued_jobs(),
      " queued; host memory ", FormatBytes(server.host_memory_used_bytes()),
      " of ", FormatBytes(server.host_memory_limit_bytes()), "\n\n",
      DeviceText(devices, width), "\n", FormatTable(jobs));
  return Cut(text, width);
}

}  // namespace roundhouse::client
