#include "client/tables/trace_json.h"

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
    track.thread = parts[0] == "compute" ? 1
                   : parts[0] == "wait"  ? 2
                   : parts[0] == "h2d"   ? 3
                   : parts[0] == "d2h"   ? 4
                                         : 5;
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
  const int layers = interval.layer_end() - interval.layer_begin();
  std::string name = kind;
  if (layers >= 1) absl::StrAppend(&name, " ", interval.layer_begin());
  if (layers > 1) absl::StrAppend(&name, "-", interval.layer_end() - 1);
  if (interval.has_unit()) absl::StrAppend(&name, " u", interval.unit());
  if (kind == "step") absl::StrAppend(&name, " ", interval.step());
  if (interval.micro_batch() >= 0) {
    absl::StrAppend(&name, " m", interval.micro_batch());
  }
  return name;
}

Json Arguments(const v1::Timeline& timeline,
               const v1::TimelineInterval& interval) {
  Json arguments = Json::object();
  if (interval.layer_end() > interval.layer_begin()) {
    arguments["layer_begin"] = interval.layer_begin();
    arguments["layer_end"] = interval.layer_end();
    arguments["micro_batch"] = interval.micro_batch();
    arguments["bytes"] = interval.bytes();
  }
  if (interval.has_unit()) arguments["unit"] = interval.unit();
  if (interval.has_job()) {
    arguments["job"] = NameAt(timeline.jobs(), interval.job());
  }
  if (interval.step() != 0) arguments["step"] = interval.step();
  if (interval.slot() != 0) arguments["slot"] = interval.slot();
  return arguments;
}

Json Event(const v1::Timeline& timeline, const Track& track,
           const v1::TimelineInterval& interval) {
  const std::string& kind = NameAt(timeline.kinds(), interval.kind());
  Json event = {{"ph", "X"}, {"name", EventName(kind, interval)}};
  event["cat"] = kind;
  event["pid"] = track.process;
  event["tid"] = track.thread;
  event["ts"] = static_cast<double>(interval.start_ns()) / kNsPerUs;
  event["dur"] = static_cast<double>(interval.length_ns()) / kNsPerUs;
  event["args"] = Arguments(timeline, interval);
  return event;
}

std::string Text(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

// Event by event: all of a long trace as one JSON object in memory would be ten
// times its text.
std::string TraceJson(const v1::Timeline& timeline,
                      const nlohmann::ordered_json& about) {
  std::string text = "{\"displayTimeUnit\":\"ms\",";
  if (!about.is_null()) {
    absl::StrAppend(&text, "\"otherData\":", Text(about), ",");
  }
  absl::StrAppend(&text, "\"traceEvents\":[");
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    absl::StrAppend(&text, std::exchange(separator, ",\n"), Text(event));
  };
  std::vector<Track> tracks;
  std::set<int> processes;
  for (const std::string& resource : timeline.resources()) {
    const Track& track =
        tracks.emplace_back(TrackOf(resource, static_cast<int>(tracks.size())));
    if (processes.insert(track.process).second) {
      add(Metadata("process_name", track, {{"name", track.process_name}}));
    }
    add(Metadata("thread_name", track, {{"name", track.name}}));
    add(Metadata("thread_sort_index", track, {{"sort_index", track.thread}}));
  }
  tracks.push_back({.process = kHostProcess, .process_name = "?", .name = "?"});
  for (const v1::TimelineInterval& interval : timeline.intervals()) {
    if (interval.length_ns() <= 0) continue;
    const int resource = interval.resource();
    const bool known = resource >= 0 && resource < timeline.resources_size();
    add(Event(timeline, known ? tracks[resource] : tracks.back(), interval));
  }
  return text + "\n]}\n";
}

}  // namespace roundhouse::client
