#include "server/api/trace_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/api/convert.h"

namespace roundhouse {
namespace {

// The names of each device, then of the host; by TraceTrack.
constexpr const char* kDeviceTracks[] = {"compute", "wait", "h2d", "d2h"};
constexpr const char* kHostTracks[] = {"host:gather", "host:reduce",
                                       "host:optimizer", "host:steps"};
constexpr int kTracksOfDevice = 4;
static_assert(static_cast<int>(TraceTrack::kGather) == kTracksOfDevice);

// What a job did that is not shown.
constexpr char kHiddenKind[] = "other";

int64_t Earliest(const Trace& trace) {
  int64_t earliest_ns = trace.started_ns;
  for (const TracedDevice& device : trace.devices) {
    earliest_ns = std::min(earliest_ns, device.started_ns);
  }
  for (const TraceInterval& interval : trace.intervals) {
    earliest_ns = std::min(earliest_ns, interval.started_ns);
  }
  return earliest_ns;
}

}  // namespace

TraceParts::TraceParts(std::shared_ptr<const Trace> trace,
                       const ShowsJob& shows)
    : trace_(std::move(trace)), origin_ns_(Earliest(*trace_)) {
  for (const std::string& job : trace_->jobs) shown_.push_back(shows(job));
  kinds_.emplace(kHiddenKind, 0);
  for (const TraceInterval& interval : trace_->intervals) {
    kinds_.emplace(interval.kind, static_cast<int>(kinds_.size()));
    backfill_ |= interval.track == TraceTrack::kBackfill;
  }
}

int TraceParts::Resource(const TraceInterval& interval) const {
  const int track = static_cast<int>(interval.track);
  if (track < kTracksOfDevice) {
    return interval.device * kTracksOfDevice + track;
  }
  const int devices = static_cast<int>(trace_->devices.size());
  const int resource = (devices - 1) * kTracksOfDevice + track;
  return interval.track == TraceTrack::kBackfill ? resource + interval.device
                                                 : resource;
}

void TraceParts::PutNames(v1::Timeline* out) const {
  for (size_t device = 0; device < trace_->devices.size(); ++device) {
    for (const char* track : kDeviceTracks) {
      out->add_resources(absl::StrCat(track, ":", device));
    }
  }
  for (const char* track : kHostTracks) out->add_resources(track);
  // Clients of before know no such tracks.
  for (size_t device = 0; backfill_ && device < trace_->devices.size();
       ++device) {
    out->add_resources(absl::StrCat("backfill:", device));
  }
  for (size_t i = 0; i < kinds_.size(); ++i) out->add_kinds();
  for (const auto& [kind, index] : kinds_) {
    out->set_kinds(index, std::string(kind));
  }
  for (const std::string& job : trace_->jobs) out->add_jobs(job);
}

void TraceParts::PutHead(v1::TraceFineTuningJobResponse* out) const {
  out->set_first_step(trace_->first_step);
  const int64_t start_ns =
      absl::ToUnixNanos(trace_->start_time) + origin_ns_ - trace_->started_ns;
  *out->mutable_start_time() = ToProto(absl::FromUnixNanos(start_ns));
  out->set_ended_early(trace_->ended_early);
  out->set_copies_left_out(static_cast<int64_t>(trace_->copies_left_out));
  for (const TracedDevice& traced : trace_->devices) {
    v1::TracedDevice* const device = out->add_devices();
    device->set_index(out->devices_size() - 1);
    device->set_start_ns(traced.started_ns - origin_ns_);
    device->set_end_ns(traced.ended_ns - origin_ns_);
    device->set_compute_ns(traced.times.compute_ns);
    device->set_bubble_ns(traced.times.bubble_ns);
    device->set_idle_ns(traced.times.idle_ns);
    device->set_fenced_ns(traced.times.fenced_ns);
  }
  PutNames(out->mutable_timeline());
}

void TraceParts::Put(const TraceInterval& interval,
                     v1::TimelineInterval* out) const {
  out->set_resource(Resource(interval));
  out->set_start_ns(interval.started_ns - origin_ns_);
  out->set_length_ns(interval.ended_ns - interval.started_ns);
  if (interval.job >= 0) out->set_job(interval.job);
  if (interval.job >= 0 && !shown_[static_cast<size_t>(interval.job)]) {
    out->set_kind(kinds_.at(kHiddenKind));
    out->set_micro_batch(-1);
    return;
  }
  out->set_kind(kinds_.at(interval.kind));
  out->set_layer_begin(interval.layer_begin);
  out->set_layer_end(interval.layer_end);
  out->set_micro_batch(interval.micro_batch);
  out->set_bytes(static_cast<int64_t>(interval.bytes));
  out->set_step(interval.step);
  out->set_slot(static_cast<int64_t>(interval.slot));
  if (interval.unit >= 0) out->set_unit(interval.unit);
}

bool TraceParts::Next(v1::TraceFineTuningJobResponse* out) {
  out->set_steps(static_cast<int32_t>(trace_->step_count));
  if (!std::exchange(begun_, true)) {
    PutHead(out);
    return true;
  }
  const size_t end =
      std::min(trace_->intervals.size(), next_ + kMaxPartIntervals);
  if (next_ == end) return false;
  for (; next_ < end; ++next_) {
    Put(trace_->intervals[next_], out->mutable_timeline()->add_intervals());
  }
  return true;
}

TraceStream::TraceStream(StreamPump* pump, grpc::CallbackServerContext* context,
                         std::shared_ptr<TraceTask> task, ShowsJob shows)
    : PumpedWriter(pump, context),
      task_(std::move(task)),
      shows_(std::move(shows)) {}

TraceStream::~TraceStream() { task_->Cancel(); }

absl::StatusOr<NextMessage> TraceStream::Next(
    absl::Time, v1::TraceFineTuningJobResponse* out) {
  if (parts_ == nullptr) {
    const auto result = task_->result();
    if (!result.has_value()) {
      const int64_t steps = task_->steps();
      if (steps == std::exchange(sent_steps_, steps)) {
        return NextMessage::kNothing;
      }
      out->set_steps(static_cast<int32_t>(steps));
      return NextMessage::kSend;
    }
    ASSIGN_OR_RETURN(auto trace, *result);
    parts_ = std::make_unique<TraceParts>(std::move(trace), shows_);
  }
  return parts_->Next(out) ? NextMessage::kSend : NextMessage::kEnd;
}

}  // namespace roundhouse
