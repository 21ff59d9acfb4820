#include "server/jobs/pool_outlook.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr double kSecond = 1e9;

JobLength WithSteps(JobLength length, int64_t steps) {
  length.steps = std::max<int64_t>(0, steps);
  return length;
}

void Add(const DeviceTimes& more, DeviceTimes& sum) {
  sum.compute_ns += more.compute_ns;
  sum.bubble_ns += more.bubble_ns;
  sum.idle_ns += more.idle_ns;
  sum.fenced_ns += more.fenced_ns;
  for (size_t cause = 0; cause < sum.bubble_causes_ns.size(); ++cause) {
    sum.bubble_causes_ns[cause] += more.bubble_causes_ns[cause];
  }
}

uint64_t HostBytes(RunningJob& run) {
  return run.runner().host_use().total() + run.table_bytes();
}

}  // namespace

void PoolOutlook::Load() {
  background_.Run<absl::StatusOr<WorkLengths>>(
      [&store = world_.store] { return ReadMeasuredWork(store); },
      [this](const absl::StatusOr<WorkLengths>& lengths) {
        if (!lengths.ok()) {
          RH_LOG(kWarning) << "what earlier jobs took is not known: "
                           << lengths.status();
          return;
        }
        for (const auto& [work, length] : *lengths) {
          if (measured_.Find(work) == nullptr) measured_.Note(work, length);
        }
      });
}

void PoolOutlook::Tick(const ShareWeights& weights) {
  std::vector<ServiceRecord::Job> jobs;
  world_.running.ForEach([&](RunningJob& run) {
    if (const auto length = Measured(run); length.has_value()) {
      measured_.Note(run.work(), *length);
    }
    if (!run.has_steps()) return;
    jobs.push_back({.id = run.id(),
                    .owner = run.owner(),
                    .priority = run.priority(),
                    .device_ns = run.device_ns(),
                    .host_ns = run.host_ns()});
  });
  DeviceTimes times;
  for (const DeviceTimes& device : world_.running.devices().times()) {
    Add(device, times);
  }
  PoolSnapshot devices;
  PutDevices(devices);
  service_.Add(MonotonicNs(), jobs, times, devices.devices_up, weights);
}

void PoolOutlook::OnEnded(const RunningJob& job, JobState state) {
  std::optional<JobLength> length = Measured(job);
  if (length.has_value() && state == JobState::kSucceeded) {
    length->ending_seconds = job.ending_seconds();
    measured_.Note(job.work(), *length);
  }
  service_.Forget(job.id());
}

JobQueue::Work PoolOutlook::WorkOf(const JobRecord& job) {
  const int64_t steps = StepsOf(job);
  return {.kind = roundhouse::WorkOf(job.resolved),
          .steps =
              steps == 0 ? 0 : std::max<int64_t>(1, steps - job.progress.step)};
}

// --- lengths ---

std::optional<JobLength> PoolOutlook::Measured(const RunningJob& run) const {
  const double seconds = run.step_device_seconds();
  if (!(seconds > 0)) return std::nullopt;
  JobLength length{.step_device_seconds = seconds,
                   .most_devices = service_.MostDevices(run.id()),
                   .loading_seconds = run.loading_seconds(),
                   .measured_in = {run.id(), run.owner().project}};
  if (const JobLength* const like = measured_.Find(run.work())) {
    length.ending_seconds = like->ending_seconds;
  }
  return length;
}

std::optional<JobLength> PoolOutlook::LengthOf(const RunningJob& run) const {
  const int64_t last = run.last_step();
  const JobLength* const like = measured_.Find(run.work());
  std::optional<JobLength> length = Measured(run);
  if (length.has_value()) {
    length->measured_in = {};
  } else if (like != nullptr) {
    length = *like;
  }
  // Before it runs nobody knows how many it makes.
  if (!length.has_value() || last == 0) return std::nullopt;
  return WithSteps(*length, last - run.progress().step);
}

std::optional<JobLength> PoolOutlook::LengthOf(
    const JobQueue::Work& work) const {
  const JobLength* const like = measured_.Find(work.kind);
  if (like == nullptr || work.steps == 0) return std::nullopt;
  return WithSteps(*like, work.steps);
}

// --- the snapshot ---

ActiveJob PoolOutlook::Active(RunningJob& run) const {
  return {.id = run.id(),
          .owner = run.owner(),
          .priority = run.priority(),
          .state = run.state(),
          .waits = run.held().has_value(),
          .rests = run.runner().resting(),
          .leaves = run.spilled(),
          .comes_back = run.after_pause() == RunningJob::AfterPause::kQueued,
          .has_steps = run.has_steps(),
          .host_bytes = HostBytes(run),
          .loaded_seconds = run.age_seconds(),
          .length = LengthOf(run),
          .step_seconds = run.step_seconds(),
          .served = service_.Of(run.id())};
}

void PoolOutlook::PutQueue(const Waiting& waiting,
                           PoolSnapshot& snapshot) const {
  const JobQueue& queue = waiting.queue;
  snapshot.queue_size = queue.size();
  snapshot.opening = waiting.opening;
  const size_t most = waiting.asked.empty() ? waiting.most : queue.size();
  std::vector<const JobQueue::Queued*> order =
      queue.InOrder(waiting.turn_of, most);
  // What is being opened goes first of its class.
  const auto opening =
      std::find_if(order.begin(), order.end(),
                   [&](const auto* job) { return job->id == waiting.opening; });
  if (opening != order.end()) {
    const auto first = std::find_if(
        order.begin(), opening,
        [&](const auto* job) { return job->priority == (*opening)->priority; });
    std::rotate(first, opening, opening + 1);
  }
  std::map<const JobQueue::Queued*, size_t> ages;
  for (const JobQueue::Queued* const job : order) ages[job] = 0;
  size_t age = 0;
  for (const JobQueue::Queued& job : queue.jobs()) {
    const auto found = ages.find(&job);
    if (found != ages.end()) found->second = age;
    ++age;
  }
  for (size_t place = 0; place < order.size(); ++place) {
    const JobQueue::Queued& job = *order[place];
    const bool asked = job.id == waiting.asked;
    if (asked) snapshot.asked_place = place + 1;
    if (place >= waiting.most && !asked) continue;
    snapshot.queue.push_back({.id = job.id,
                              .owner = job.owner,
                              .priority = job.priority,
                              .age = ages[&job],
                              .ran = job.ran,
                              .host_bytes = job.host_bytes,
                              .shared_bytes = waiting.shared_bytes(job.id),
                              .length = LengthOf(job.work)});
  }
}

void PoolOutlook::PutUse(const Waiting& waiting, PoolSnapshot& snapshot) const {
  const double unit = waiting.recent.PerNs() * kSecond;
  const auto put = [&](const JobOwner& owner) {
    snapshot.project_use[owner.project] =
        waiting.recent.OfProject(owner.project) / unit;
    snapshot.user_use[{owner.project, owner.user}] =
        waiting.recent.OfUser(owner) / unit;
  };
  for (const WaitingJob& job : snapshot.queue) put(job.owner);
  for (const ActiveJob& job : snapshot.active) put(job.owner);
}

void PoolOutlook::PutDevices(PoolSnapshot& snapshot) const {
  for (const DeviceInfo& device : world_.running.devices().Infos()) {
    switch (device.state) {
      case DeviceState::kUp:
        ++snapshot.devices_up;
        break;
      case DeviceState::kStarting:
        ++snapshot.devices_starting;
        break;
      case DeviceState::kLost:
        ++snapshot.devices_lost;
        break;
      case DeviceState::kTakenOut:
        ++snapshot.devices_out;
        break;
    }
  }
}

void PoolOutlook::PutMemory(PoolSnapshot& snapshot) const {
  const uint64_t tables = world_.running.TableBytes() + kRoundingBytes;
  const uint64_t gap = world_.arena.largest_gap_bytes();
  snapshot.memory_limit_bytes = world_.arena.limit_bytes();
  snapshot.memory_used_bytes = world_.arena.used_bytes();
  snapshot.memory_available_bytes = gap - std::min(gap, tables);
  // Whoever rests gives it to the first that needs it.
  for (const auto& [id, run] : world_.running.jobs()) {
    if (!run->runner().resting()) continue;
    snapshot.memory_available_bytes += HostBytes(*run);
  }
  snapshot.memory_being_freed = world_.arena.frees_later();
}

PoolSnapshot PoolOutlook::Look(const Waiting& waiting) const {
  PoolSnapshot snapshot;
  snapshot.now = world_.loop.clock().WallTime();
  snapshot.sharing = waiting.sharing;
  snapshot.used = waiting.used;
  snapshot.places_taken = world_.running.PlacesTaken();
  world_.running.ForEach(
      [&](RunningJob& run) { snapshot.active.push_back(Active(run)); });
  PutQueue(waiting, snapshot);
  PutUse(waiting, snapshot);
  PutDevices(snapshot);
  PutMemory(snapshot);
  snapshot.window_seconds = service_.WindowSeconds();
  snapshot.times = service_.Times();
  return snapshot;
}

}  // namespace roundhouse
