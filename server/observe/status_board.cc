#include "server/observe/status_board.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/wire/wait_cause.h"
#include "nlohmann/json.hpp"
#include "server/observe/metrics.h"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

int64_t Milliseconds(int64_t ns) { return ns / 1'000'000; }
double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }
// Rounds ratios and losses: digits that nobody sees would be most of the bytes.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale =
      std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

// The jobs that blocks belong to, each named once; blocks have their index.
// Always in the same order, samples last: the picture stacks jobs by it.
class TimelineJobs {
 public:
  explicit TimelineJobs(const StatusSnapshot& snapshot) {
    std::map<std::string, int> colors;
    for (const StatusEnded& job : snapshot.ended) colors[job.id] = job.color;
    for (const StatusJob& job : snapshot.jobs) colors[job.id] = job.color;
    for (const StatusDevice& device : snapshot.devices) {
      for (const SlotBlock& block : device.slots) index_[block.job] = 0;
    }
    const bool samples = index_.erase("") != 0;
    for (auto& [job, index] : index_) {
      const auto color = colors.find(job);
      index = Add(job, color == colors.end() ? -1 : color->second);
    }
    if (samples) index_[""] = Add("", -1);
  }

  int Index(const std::string& job) const { return index_.at(job); }
  const Json& jobs() const { return jobs_; }

 private:
  int Add(const std::string& job, int color) {
    jobs_.push_back({{"id", job}, {"color", color}});
    return static_cast<int>(jobs_.size()) - 1;
  }

  std::map<std::string, int> index_;
  Json jobs_ = Json::array();
};

// Ten numbers a block, one after the other, since lists of lists take ten times
// as long: start (since the window's), length and computing in milliseconds;
// index of the job; slots; passes; steps from, to; layers from, to.
void AppendBlock(const SlotBlock& block, int64_t window_ns, int job,
                 std::vector<int64_t>& numbers) {
  numbers.insert(
      numbers.end(),
      {Milliseconds(block.started_ns - window_ns),
       std::max<int64_t>(1, Milliseconds(block.ended_ns - block.started_ns)),
       Milliseconds(block.compute_ns), job, block.slots, block.passes,
       block.first_step, block.last_step, block.layers.first,
       block.layers.last});
}

Json DeviceJson(const StatusDevice& device, int64_t now_ns,
                const TimelineJobs& jobs) {
  Json causes = Json::object();
  for (int c = 0; c < wire::kWaitCauses; ++c) {
    causes[WaitCauseName(static_cast<wire::WaitCause>(c))] =
        Rounded(Seconds(device.times.bubble_causes_ns[c]));
  }
  const int64_t window_ns = now_ns - kSlotWindowNs;
  std::vector<int64_t> slots;
  for (const SlotBlock& block : device.slots) {
    AppendBlock(block, window_ns, jobs.Index(block.job), slots);
  }
  return {
      {"index", device.index},
      {"kind", device.kind},
      {"product_name", device.product_name},
      {"state", device.state},
      {"out_as", device.out_as},
      {"job", device.job},
      {"restarts", device.restarts},
      {"memory_used_bytes", device.memory_used_bytes},
      {"memory_limit_bytes", device.memory_limit_bytes},
      {"bubble_ratio", Rounded(device.bubble_ratio)},
      {"compute_seconds", Rounded(Seconds(device.times.compute_ns))},
      {"bubble_seconds", Rounded(Seconds(device.times.bubble_ns))},
      {"idle_seconds", Rounded(Seconds(device.times.idle_ns))},
      {"fenced_seconds", Rounded(Seconds(device.times.fenced_ns))},
      {"bubble_causes", std::move(causes)},
      {"link_up_ratio", Rounded(device.link_up_ratio)},
      {"link_down_ratio", Rounded(device.link_down_ratio)},
      {"slots_since_ms",
       std::max<int64_t>(0, Milliseconds(device.slots_since_ns - window_ns))},
      {"slots", std::move(slots)}};
}

Json CurveJson(const std::vector<LossPoint>& points) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (const LossPoint& point : points) {
    steps.push_back(point.step);
    values.push_back(Rounded(point.loss));
  }
  return {{"steps", std::move(steps)}, {"values", std::move(values)}};
}

Json JobJson(const StatusJob& job, absl::Time now) {
  Json json = {{"id", job.id},
               {"color", job.color},
               {"state", JobStateName(job.state)},
               {"step", job.step},
               {"total_steps", job.total_steps},
               {"epoch", Rounded(job.epoch)},
               {"tokens_per_second", Rounded(job.tokens_per_second)},
               {"share", Rounded(job.share)},
               {"losses", CurveJson(job.losses)},
               {"validation_losses", CurveJson(job.validation_losses)}};
  if (job.expert_load.has_value()) {
    json["expert_load"] = {
        {"max_over_mean", Rounded(job.expert_load->max_over_mean)},
        {"layer", job.expert_load->layer},
        {"unhit_experts", job.expert_load->unhit}};
  }
  if (job.eta.has_value()) {
    json["seconds_left"] =
        std::max<int64_t>(0, absl::ToInt64Seconds(*job.eta - now));
  }
  return json;
}

Json QueueJson(const StatusSnapshot& snapshot) {
  Json queue = Json::array();
  for (const StatusQueued& job : snapshot.queue) {
    queue.push_back(
        {{"id", job.id},
         {"waiting_seconds", absl::ToInt64Seconds(snapshot.time - job.since)}});
  }
  return queue;
}

Json EndedJson(const StatusSnapshot& snapshot) {
  Json all = Json::array();
  for (const StatusEnded& job : snapshot.ended) {
    all.push_back(
        {{"id", job.id},
         {"color", job.color},
         {"state", JobStateName(job.state)},
         {"reason", JobReasonName(job.reason)},
         {"seconds_ago", absl::ToInt64Seconds(snapshot.time - job.ended)}});
  }
  return all;
}

}  // namespace

int ChooseJobColor(int64_t job_number, const std::set<int>& taken) {
  const int own = static_cast<int>(job_number % kJobColors);
  for (int i = 0; i < kJobColors; ++i) {
    const int color = (own + i) % kJobColors;
    if (!taken.contains(color)) return color;
  }
  return own;
}

std::string StatusJson(const StatusSnapshot& snapshot) {
  const TimelineJobs timeline_jobs(snapshot);
  Json devices = Json::array();
  for (const StatusDevice& device : snapshot.devices) {
    devices.push_back(DeviceJson(device, snapshot.now_ns, timeline_jobs));
  }
  Json jobs = Json::array();
  for (const StatusJob& job : snapshot.jobs) {
    jobs.push_back(JobJson(job, snapshot.time));
  }
  const Json json = {
      {"time_ms", absl::ToUnixMillis(snapshot.time)},
      {"version", snapshot.version},
      {"uptime_seconds",
       absl::ToInt64Seconds(snapshot.time - snapshot.start_time)},
      {"stopping", snapshot.stopping},
      {"max_running_jobs", snapshot.max_running_jobs},
      {"host_memory_used_bytes", snapshot.host_used_bytes},
      {"host_memory_limit_bytes", snapshot.host_limit_bytes},
      {"window_ms", Milliseconds(kSlotWindowNs)},
      {"timeline_jobs", timeline_jobs.jobs()},
      {"devices", std::move(devices)},
      {"jobs", std::move(jobs)},
      {"queue", QueueJson(snapshot)},
      {"queue_count", snapshot.queue_count},
      {"validating_count", snapshot.validating},
      {"ended", EndedJson(snapshot)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void StatusBoard::Publish(StatusSnapshot snapshot) {
  auto next = std::make_shared<const StatusSnapshot>(std::move(snapshot));
  MutexLock lock(mutex_);
  newest_.swap(next);
}

std::optional<std::string> StatusBoard::Json() {
  MutexLock json_lock(json_mutex_);
  std::shared_ptr<const StatusSnapshot> newest;
  {
    MutexLock lock(mutex_);
    newest = newest_;
  }
  if (newest == nullptr) return std::nullopt;
  if (newest != written_) {
    json_ = StatusJson(*newest);
    written_ = std::move(newest);
  }
  return json_;
}

}  // namespace roundhouse
