#include "client/trace_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roundhouse::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNsPerUs = 1000;
constexpr int kHostProcess = 0;

// Where a resource's track is: "compute:3" is "compute" of device 3's process.
struct Track {
  int process = kHostProcess;
  int thread = 0;  // of the process; also the order in which tracks are shown
  std::string process_name = "host";
  std::string name;
};

Track TrackOf(const std::string& resource, int index) {
  const std::vector<std::string> parts =
      absl::StrSplit(resource, absl::MaxSplits(':', 1));
  Track track;
  track.thread = index + 1;
  int device = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &device)) {
    track.process = device + 1;
    track.process_name = absl::StrCat("device ", device);
    track.name = parts[0];
    track.thread = parts[0] == "compute" ? 1 : parts[0] == "h2d" ? 2 : 3;
  } else {
    track.name = parts.back();
  }
  return track;
}

Json Metadata(const char* what, const Track& track, Json arguments) {
  Json event = {{"ph", "M"}, {"name", what}, {"pid", track.process}};
  event["tid"] = track.thread;
  event["args"] = std::move(arguments);
  return event;
}

const std::string& NameAt(
    const google::protobuf::RepeatedPtrField<std::string>& names, int index) {
  static const std::string& unknown = *new std::string("?");
  return index >= 0 && index < names.size() ? names[index] : unknown;
}

std::string EventName(const std::string& kind,
                      const v1::TimelineInterval& interval) {
  const bool one = interval.layer_end() <= interval.layer_begin() + 1;
  std::string name = absl::StrCat(kind, " ", interval.layer_begin());
  if (!one) absl::StrAppend(&name, "-", interval.layer_end() - 1);
  if (interval.micro_batch() >= 0) {
    absl::StrAppend(&name, " m", interval.micro_batch());
  }
  return name;
}

Json Event(const std::string& kind, const Track& track,
           const v1::TimelineInterval& interval) {
  Json event = {{"ph", "X"}, {"name", EventName(kind, interval)}};
  event["cat"] = kind;
  event["pid"] = track.process;
  event["tid"] = track.thread;
  event["ts"] = static_cast<double>(interval.start_ns()) / kNsPerUs;
  event["dur"] = static_cast<double>(interval.length_ns()) / kNsPerUs;
  event["args"] = {{"layer_begin", interval.layer_begin()},
                   {"layer_end", interval.layer_end()},
                   {"micro_batch", interval.micro_batch()},
                   {"bytes", interval.bytes()}};
  return event;
}

}  // namespace

std::string TraceJson(const v1::Timeline& timeline) {
  Json events = Json::array();
  std::vector<Track> tracks;
  std::set<int> processes;
  for (const std::string& resource : timeline.resources()) {
    const Track& track =
        tracks.emplace_back(TrackOf(resource, static_cast<int>(tracks.size())));
    if (processes.insert(track.process).second) {
      events.push_back(
          Metadata("process_name", track, {{"name", track.process_name}}));
    }
    events.push_back(Metadata("thread_name", track, {{"name", track.name}}));
    events.push_back(
        Metadata("thread_sort_index", track, {{"sort_index", track.thread}}));
  }
  tracks.push_back({.process = kHostProcess, .process_name = "?", .name = "?"});
  for (const v1::TimelineInterval& interval : timeline.intervals()) {
    if (interval.length_ns() <= 0) continue;
    const int resource = interval.resource();
    const bool known = resource >= 0 && resource < timeline.resources_size();
    events.push_back(Event(NameAt(timeline.kinds(), interval.kind()),
                           known ? tracks[resource] : tracks.back(), interval));
  }
  const Json trace = {{"displayTimeUnit", "ms"},
                      {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace roundhouse::client
