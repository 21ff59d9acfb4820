#include "server/explain/explanation.h"

#include <algorithm>

#include "base/wire/wait_cause.h"
#include "google/protobuf/timestamp.pb.h"
#include "scheduler/forecast/shared_rates.h"
#include "server/access/job_names.h"
#include "server/explain/obstacles.h"
#include "server/explain/pool_model.h"
#include "server/observe/metrics.h"

namespace roundhouse {
namespace {

// Ten thousand days; what is expected later is not known.
constexpr double kLatestSeconds = 864e6;

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  out.set_seconds(absl::ToUnixSeconds(time));
  return out;
}

v1::UnknownTime ToProto(Unknown unknown) {
  switch (unknown) {
    case Unknown::kNothing:
      return v1::UNKNOWN_TIME_UNSPECIFIED;
    case Unknown::kNoDevice:
      return v1::UNKNOWN_TIME_NO_DEVICE;
    case Unknown::kLength:
      return v1::UNKNOWN_TIME_LENGTH;
    case Unknown::kNeed:
      return v1::UNKNOWN_TIME_NEED;
    case Unknown::kMayNot:
      return v1::UNKNOWN_TIME_LIMIT;
  }
  return v1::UNKNOWN_TIME_UNSPECIFIED;
}

void PutLength(const std::optional<JobLength>& length, const NameOf& name_of,
               v1::ExpectedTimes& out) {
  if (!length.has_value()) return;
  out.set_steps_left(length->steps);
  out.set_step_device_seconds(length->step_device_seconds);
  const JobRef& in = length->measured_in;
  out.set_own_steps(in.id.empty());
  if (!in.id.empty()) out.set_measured_in(name_of(in.id, in.project));
}

void PutTimes(const PoolSnapshot& snapshot, const Expected& expected,
              v1::ExpectedTimes& out) {
  const auto put =
      [&](std::optional<double> seconds, Unknown why,
          google::protobuf::Timestamp* (v1::ExpectedTimes::*time)(),
          void (v1::ExpectedTimes::*unknown)(v1::UnknownTime)) {
        if (!seconds.has_value()) return (out.*unknown)(ToProto(why));
        if (*seconds > kLatestSeconds) {
          return (out.*unknown)(v1::UNKNOWN_TIME_TOO_FAR);
        }
        *(out.*time)() = ToProto(snapshot.now + absl::Seconds(*seconds));
      };
  put(expected.start, expected.start_unknown, &v1::ExpectedTimes::mutable_start,
      &v1::ExpectedTimes::set_start_unknown);
  put(expected.end, expected.end_unknown, &v1::ExpectedTimes::mutable_end,
      &v1::ExpectedTimes::set_end_unknown);
}

void SetUnknown(v1::UnknownTime why, v1::ExpectedTimes& out) {
  out.set_start_unknown(why);
  out.set_end_unknown(why);
}

void PutWaiting(const PoolSnapshot& snapshot, const NameOf& name_of,
                v1::ExpectedTimes& out) {
  const std::vector<WaitingJob>& queue = snapshot.queue;
  const auto asked = std::find_if(
      queue.begin(), queue.end(),
      [&](const WaitingJob& job) { return job.id == snapshot.asked.id; });
  if (asked == queue.end()) return SetUnknown(v1::UNKNOWN_TIME_WAITS, out);
  PutLength(asked->length, name_of, out);
  if (snapshot.stopping || !snapshot.reserve_held) {
    return SetUnknown(v1::UNKNOWN_TIME_NOTHING_STARTS, out);
  }
  if (snapshot.asked_place > kMostForecast) {
    return SetUnknown(v1::UNKNOWN_TIME_TOO_FAR, out);
  }
  const PoolModel model = ModelOf(snapshot);
  const auto place = static_cast<size_t>(asked - queue.begin());
  PutTimes(snapshot, ForecastOf(model.pool).queue[model.places[place]], out);
}

void PutActive(const PoolSnapshot& snapshot, const NameOf& name_of,
               v1::ExpectedTimes& out) {
  for (size_t i = 0; i < snapshot.active.size(); ++i) {
    const ActiveJob& job = snapshot.active[i];
    if (job.id != snapshot.asked.id) continue;
    PutLength(job.length, name_of, out);
    if (job.waits) return out.set_end_unknown(v1::UNKNOWN_TIME_WAITS);
    PutTimes(snapshot, ForecastOf(ModelOf(snapshot).pool).running[i], out);
  }
  out.clear_start();  // it has begun
}

void PutExpected(const PoolSnapshot& snapshot, const NameOf& name_of,
                 v1::ExpectedTimes& out) {
  switch (snapshot.asked.state) {
    case JobState::kQueued:
      return PutWaiting(snapshot, name_of, out);
    case JobState::kLoading:
    case JobState::kRunning:
    case JobState::kFinalizing:
      return PutActive(snapshot, name_of, out);
    case JobState::kValidating:
    case JobState::kRecovering:
    case JobState::kPaused:
      return SetUnknown(v1::UNKNOWN_TIME_WAITS, out);
    default:
      return;
  }
}

void PutWaits(const PoolSnapshot& snapshot, v1::DeviceService& out) {
  out.set_bubble_seconds(static_cast<double>(snapshot.times.bubble_ns) * 1e-9);
  for (int cause = 0; cause < wire::kWaitCauses; ++cause) {
    const int64_t ns = snapshot.times.bubble_causes_ns[cause];
    if (ns <= 0) continue;
    v1::WaitedFor& waited = *out.add_causes();
    waited.set_cause(WaitCauseName(static_cast<wire::WaitCause>(cause)));
    waited.set_seconds(static_cast<double>(ns) * 1e-9);
  }
  std::stable_sort(out.mutable_causes()->begin(), out.mutable_causes()->end(),
                   [](const v1::WaitedFor& a, const v1::WaitedFor& b) {
                     return a.seconds() > b.seconds();
                   });
}

// None: it has no steps.
std::optional<v1::DeviceService> ServiceOf(const PoolSnapshot& snapshot) {
  std::vector<SharingJob> sharing;
  const ActiveJob* asked = nullptr;
  size_t place = 0;
  int urgent = 0, backfill = 0;
  for (const ActiveJob& job : snapshot.active) {
    if (!job.has_steps) continue;
    if (job.id == snapshot.asked.id) {
      asked = &job;
      place = sharing.size();
    }
    urgent += job.priority == Priority::kUrgent ? 1 : 0;
    backfill += job.priority == Priority::kBackfill ? 1 : 0;
    sharing.push_back({job.owner, job.priority});
  }
  if (asked == nullptr) return std::nullopt;
  v1::DeviceService out;
  const ServedJob& served = asked->served;
  out.set_window_seconds(served.window_seconds);
  out.set_device_seconds(served.device_seconds);
  out.set_host_seconds(served.host_seconds);
  if (served.all_device_seconds > 0) {
    out.set_share(
        std::min(1.0, served.device_seconds / served.all_device_seconds));
  }
  // The rate on one device is the share of all.
  out.set_fair_share(SharedRates(sharing, 1, snapshot.sharing.weights)[place]);
  out.set_jobs(static_cast<int32_t>(sharing.size()));
  out.set_urgent_jobs(urgent);
  out.set_backfill_jobs(backfill);
  out.set_step_seconds(asked->step_seconds);
  PutWaits(snapshot, out);
  return out;
}

}  // namespace

v1::JobExplanation ExplanationOf(const PoolSnapshot& snapshot,
                                 std::optional<absl::Time> since,
                                 const ExplanationAsker& asker) {
  const NameOf name_of = [&asker](const std::string& id,
                                  const std::string& project) {
    return asker.may_see(project) ? JobName(project, id) : "";
  };
  v1::JobExplanation out;
  *out.mutable_time() = ToProto(snapshot.now);
  if (since.has_value()) *out.mutable_since() = ToProto(*since);
  *out.mutable_obstacles() = ObstaclesOf(snapshot, name_of);
  if (const auto place = PlaceOf(snapshot, name_of); place.has_value()) {
    *out.mutable_queue() = *place;
  }
  PutExpected(snapshot, name_of, *out.mutable_expected());
  if (const auto service = ServiceOf(snapshot); service.has_value()) {
    *out.mutable_service() = *service;
  }
  v1::PoolDevices& devices = *out.mutable_devices();
  devices.set_in_use(snapshot.devices_up);
  devices.set_starting(snapshot.devices_starting);
  devices.set_lost(snapshot.devices_lost);
  devices.set_out(snapshot.devices_out);
  return out;
}

}  // namespace roundhouse
