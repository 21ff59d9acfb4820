#include "client/top_output.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

// Causes of one device's bubbles that are named, the largest first.
constexpr size_t kMaxCauses = 3;

std::string Percent(double share) {
  return absl::StrCat(std::lround(100 * std::clamp(share, 0.0, 1.0)), "%");
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

// "dependency 12%, h2d_wait 5%", of the time between the looks.
std::string Causes(const v1::Device& before, const v1::Device& after,
                   double seconds) {
  std::map<std::string, double> spent;
  for (const v1::BubbleCause& cause : after.bubble_causes()) {
    spent[cause.cause()] += cause.seconds();
  }
  for (const v1::BubbleCause& cause : before.bubble_causes()) {
    spent[cause.cause()] -= cause.seconds();
  }
  std::vector<std::pair<double, std::string>> causes;
  for (const auto& [cause, time] : spent) {
    if (time >= 0.005 * seconds) causes.push_back({-time / seconds, cause});
  }
  std::sort(causes.begin(), causes.end());
  if (causes.size() > kMaxCauses) causes.resize(kMaxCauses);
  return absl::StrJoin(causes, ", ", [](std::string* out, const auto& cause) {
    absl::StrAppend(out, cause.second, " ", Percent(-cause.first));
  });
}

std::vector<std::string> DeviceRow(const v1::Device& before,
                                   const v1::Device& after, double seconds) {
  const auto share = [seconds](double time) {
    return seconds > 0 ? Percent(time / seconds) : "-";
  };
  return {std::to_string(after.index()),
          v1::DeviceState_Name(after.state()),
          share(after.compute_seconds() - before.compute_seconds()),
          share(after.bubble_seconds() - before.bubble_seconds()),
          Rate(after.h2d_bytes() - before.h2d_bytes(), seconds),
          Rate(after.d2h_bytes() - before.d2h_bytes(), seconds),
          ShortName(after.job()),
          seconds > 0 ? Causes(before, after, seconds) : ""};
}

std::vector<std::string> JobRow(const v1::FineTuningJob& job, absl::Time now) {
  const bool steps = job.step() > 0;
  return {
      ShortName(job.name()),
      v1::JobState_Name(job.state()),
      job.total_steps() > 0 ? absl::StrCat(job.step(), "/", job.total_steps())
                            : "",
      steps ? FormatLoss(job.loss()) : "",
      job.tokens_per_second() > 0 ? FormatCount(job.tokens_per_second()) : "",
      job.has_eta() ? ClockText(TimeOf(job.eta()) - now) : ""};
}

// A list loses whole entries, where it has some that fit.
std::string CutLine(const std::string& line, size_t columns) {
  if (line.size() <= columns) return line;
  const size_t comma = line.rfind(", ", columns);
  std::string cut =
      line.substr(0, comma == std::string::npos ? columns : comma);
  cut.resize(cut.size() - UnfinishedBytes(cut));
  return cut;
}

std::string Cut(const std::string& text, int columns) {
  const auto width = static_cast<size_t>(std::max(1, columns));
  std::string out;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    absl::StrAppend(&out, CutLine(line, width), "\n");
  }
  out.pop_back();  // of what follows the last newline
  return out;
}

}  // namespace

std::string TopText(const TopLook& before, const TopLook& after, int columns) {
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
  return Cut(absl::StrCat(server.running_jobs(), " running, ",
                          server.queued_jobs(), " queued; host memory ",
                          FormatBytes(server.host_memory_used_bytes()), " of ",
                          FormatBytes(server.host_memory_limit_bytes()), "\n\n",
                          FormatTable(devices), "\n", FormatTable(jobs)),
             columns);
}

}  // namespace roundhouse::client
