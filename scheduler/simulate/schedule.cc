#include "scheduler/simulate/schedule.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roundhouse {
namespace {

std::string Milliseconds(int64_t ns) {
  return absl::StrFormat("%d.%06d", ns / 1000000, ns % 1000000);
}

}  // namespace

bool IsCompute(WorkKind kind) {
  switch (kind) {
    case WorkKind::kForward:
    case WorkKind::kRecompute:
    case WorkKind::kBackward:
    case WorkKind::kHeadForward:
    case WorkKind::kHeadBackward:
    case WorkKind::kFused:
      return true;
    case WorkKind::kWeights:
    case WorkKind::kGradients:
    case WorkKind::kActivations:
    case WorkKind::kReduce:
    case WorkKind::kOptimizer:
      return false;
  }
  return false;
}

int64_t Schedule::MakespanNs() const {
  int64_t latest = 0;
  for (const Interval& interval : intervals) {
    if (interval.length_ns() > 0) latest = std::max(latest, interval.end_ns);
  }
  return latest;
}

int64_t Schedule::BusyNs() const {
  int64_t busy = 0;
  for (const Interval& interval : intervals) {
    if (IsCompute(interval.kind)) busy += interval.length_ns();
  }
  return busy;
}

double Schedule::BubblePercent() const {
  const int64_t makespan = MakespanNs();
  if (makespan == 0 || device_count == 0) return 0;
  const double whole = static_cast<double>(makespan) * device_count;
  return 100 * (1 - static_cast<double>(BusyNs()) / whole);
}

std::string ResourceName(const Resource& resource) {
  switch (resource.type) {
    case ResourceType::kCompute:
      return absl::StrCat("compute:", resource.index);
    case ResourceType::kH2d:
      return absl::StrCat("h2d:", resource.index);
    case ResourceType::kD2h:
      return absl::StrCat("d2h:", resource.index);
    case ResourceType::kHost:
      break;
  }
  return resource.index == static_cast<int>(HostThreads::kReduce)
             ? "host:reduce"
             : "host:optimizer";
}

absl::string_view WorkKindName(WorkKind kind) {
  switch (kind) {
    case WorkKind::kForward:
      return "forward";
    case WorkKind::kRecompute:
      return "recompute";
    case WorkKind::kBackward:
      return "backward";
    case WorkKind::kHeadForward:
      return "head_forward";
    case WorkKind::kHeadBackward:
      return "head_backward";
    case WorkKind::kFused:
      return "fused";
    case WorkKind::kWeights:
      return "weights";
    case WorkKind::kGradients:
      return "gradients";
    case WorkKind::kActivations:
      return "activations";
    case WorkKind::kReduce:
      return "reduce";
    case WorkKind::kOptimizer:
      return "optimizer";
  }
  return "";
}

absl::string_view PassDirectionName(PassDirection direction) {
  switch (direction) {
    case PassDirection::kForward:
      return "forward";
    case PassDirection::kBackward:
      return "backward";
    case PassDirection::kAgain:
      return "again";
  }
  return "";
}

std::string ToString(const Interval& interval) {
  return absl::StrCat(ResourceName(interval.resource), " ",
                      WorkKindName(interval.kind), " of layers [",
                      interval.layer_begin, ",", interval.layer_end,
                      ") micro-batch ", interval.micro_batch, " ",
                      PassDirectionName(interval.direction), " at ",
                      Milliseconds(interval.start_ns), "..",
                      Milliseconds(interval.end_ns), " ms");
}

std::string ScheduleCsv(const Schedule& schedule) {
  std::vector<Interval> rows = schedule.intervals;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Interval& a, const Interval& b) {
                     return std::tie(a.resource, a.start_ns, a.end_ns) <
                            std::tie(b.resource, b.start_ns, b.end_ns);
                   });
  std::string text =
      "resource,kind,job,step,direction,layer_begin,layer_end,micro_batch,"
      "start_ms,end_ms,bytes\n";
  for (const Interval& row : rows) {
    absl::StrAppend(&text, ResourceName(row.resource), ",",
                    WorkKindName(row.kind), ",", row.job, ",", row.step, ",",
                    PassDirectionName(row.direction), ",", row.layer_begin, ",",
                    row.layer_end, ",", row.micro_batch, ",",
                    Milliseconds(row.start_ns), ",");
    absl::StrAppend(&text, Milliseconds(row.end_ns), ",", row.bytes, "\n");
  }
  return text;
}

}  // namespace roundhouse
