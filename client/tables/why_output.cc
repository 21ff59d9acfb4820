#include "client/tables/why_output.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/text_width.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr size_t kColumns = 80;

// A paragraph that begins with `first`; its other lines stand below its text.
std::string Paragraph(const std::string& first, const std::string& text) {
  const std::string indent(first.size(), ' ');
  std::string out;
  for (const std::string& line : WrapText(text, kColumns - first.size())) {
    absl::StrAppend(&out, out.empty() ? first : indent, line, "\n");
  }
  return out;
}

std::string NameText(const std::string& job) {
  return job.empty() ? "another's job" : VisibleLine(ShortName(job));
}

std::string WhenText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", TimeOf(time),
                          absl::UTCTimeZone());
}

std::string PercentText(double share) {
  return absl::StrFormat("%.0f %%", 100 * share);
}

std::string SecondsText(double seconds) {
  return absl::StrFormat("%.1f s", seconds);
}

// --- what is in the way ---

std::string LimitText(const v1::ReachedLimit& limit) {
  const std::string subject = VisibleLine(limit.subject());
  return absl::StrCat(
      "the limit ", limit.limit(), " of ", subject, " is ", limit.value(),
      ", of which ", limit.used(), " are used",
      limit.more() > 1 ? absl::StrCat(", and it needs ", limit.more(), " more")
                       : "",
      ". An admin changes it with: roundhouse limit set ", subject, " ",
      limit.limit(), " VALUE");
}

std::string MemoryText(const v1::Obstacle& obstacle) {
  const v1::MissingMemory& memory = obstacle.memory();
  std::string text = absl::StrCat(
      FormatBytes(memory.needed_bytes()), " of host memory; ",
      FormatBytes(memory.available_bytes()), " can be had in one piece, ",
      FormatBytes(memory.free_bytes()), " of ",
      FormatBytes(memory.limit_bytes()), " are free");
  if (memory.being_freed()) {
    absl::StrAppend(&text, ". Memory of a job that has ended is being freed");
  }
  if (obstacle.jobs_give_way()) {
    absl::StrAppend(&text, ". Jobs of a lower class are saved for it");
  }
  return text;
}

std::string HolderText(const v1::MemoryHolder& holder) {
  return holder.waits()         ? " (PAUSED, keeps it)"
         : holder.leaves()      ? " (is being saved)"
         : holder.lower_class() ? " (of a lower class)"
                                : "";
}

std::string HoldersText(const v1::MissingMemory& memory) {
  std::vector<std::string> parts;
  for (const v1::MemoryHolder& holder : memory.holders()) {
    parts.push_back(absl::StrCat(NameText(holder.job()), " ",
                                 FormatBytes(holder.bytes()),
                                 HolderText(holder)));
  }
  if (memory.other_bytes() > 0) {
    parts.push_back(
        absl::StrCat("all else ", FormatBytes(memory.other_bytes())));
  }
  return parts.empty() ? "" : absl::StrJoin(parts, ", ");
}

// As a sentence about `it`: "it", "job-3".
std::string ObstacleText(const v1::Obstacle& obstacle, const std::string& it) {
  switch (obstacle.kind()) {
    case v1::OBSTACLE_DATA:
      return "its datasets are being read and tokenized";
    case v1::OBSTACLE_DAEMON_STOPS:
      return "the daemon is ending and starts nothing; it goes on with the "
             "next one";
    case v1::OBSTACLE_DISK_RESERVE:
      return "the server's disk is full: no job starts until there is room. "
             "roundhouse du says who has what";
    case v1::OBSTACLE_LIMIT:
      return LimitText(obstacle.limit());
    case v1::OBSTACLE_JOBS_BEFORE:
      return "others go first";
    case v1::OBSTACLE_MAX_RUNNING_JOBS:
      return absl::StrCat(obstacle.limit().used(),
                          " jobs run, as many as may (--max-running-jobs): ",
                          obstacle.jobs_give_way()
                              ? "one of a lower class is saved for it"
                              : "one has to end");
    case v1::OBSTACLE_HOST_MEMORY:
      return absl::StrCat(it, " needs ", MemoryText(obstacle));
    case v1::OBSTACLE_BEING_OPENED:
      return absl::StrCat(it == "it" ? "its" : absl::StrCat(it, "'s"),
                          " turn has come: its files are being opened and its "
                          "data verified");
    case v1::OBSTACLE_LOADING:
      return "its weights are being read into host memory";
    case v1::OBSTACLE_NO_DEVICE:
      return "no device is in use: roundhouse device says who has them";
    case v1::OBSTACLE_PAUSED:
      return "it is paused";
    case v1::OBSTACLE_SAVING:
      return "what it saves is being written, or its last updates are made";
    case v1::OBSTACLE_RECOVERING:
      return "it goes on after a crash or a restart, once it is queued again";
    case v1::OBSTACLE_ENDED:
      return "it has ended, or is about to";
    default:
      return absl::StrCat("obstacle ", static_cast<int>(obstacle.kind()));
  }
}

std::string OrderText(const v1::JobBefore& before) {
  const auto had_less = [&before](const std::string& who) {
    return absl::StrFormat(
        "its %s had less of the devices lately: %.2f device hours for its "
        "share, this one's %.2f",
        who, before.its_hours(), before.job_hours());
  };
  switch (before.reason()) {
    case v1::ORDER_REASON_CLASS:
      return absl::StrCat("is ", before.job_class().empty()
                                     ? "urgent"
                                     : VisibleLine(before.job_class()));
    case v1::ORDER_REASON_BEING_OPENED:
      return "is being opened";
    case v1::ORDER_REASON_PROJECT_HAD_LESS:
      return had_less("project");
    case v1::ORDER_REASON_USER_HAD_LESS:
      return had_less("user");
    case v1::ORDER_REASON_OLDER:
      return "has waited for longer";
    case v1::ORDER_REASON_RAN:
      return "ran before, and goes on";
    default:
      return "goes first";
  }
}

std::string QueueText(const v1::QueuePlace& queue) {
  const int before = queue.place() - 1;
  std::string text =
      Paragraph("- ", absl::StrCat("it is number ", queue.place(), " of ",
                                   queue.size(), " in the queue; before it:"));
  for (const v1::JobBefore& job : queue.before()) {
    text +=
        Paragraph("    ", absl::StrCat(NameText(job.job()), " ", OrderText(job),
                                       job.passed_over()
                                           ? " (passed over now, by a limit "
                                             "of its owner)"
                                           : ""));
  }
  if (before > queue.before_size()) {
    absl::StrAppend(&text, "    and ", before - queue.before_size(), " more\n");
  }
  const std::string first = NameText(queue.first());
  for (const v1::Obstacle& obstacle : queue.first_obstacles()) {
    text += Paragraph("  ", absl::StrCat("The first of them that may start: ",
                                         ObstacleText(obstacle, first), "."));
    if (!obstacle.has_memory()) continue;
    const std::string holders = HoldersText(obstacle.memory());
    if (!holders.empty()) text += Paragraph("    held: ", holders);
  }
  return text;
}

bool IsStopped(const v1::FineTuningJob& job) {
  return job.state() == v1::PAUSED || job.state() == v1::FAILED ||
         job.state() == v1::SUCCEEDED || job.state() == v1::CANCELLED;
}

// What somebody can do about it; "": nothing.
std::string AdviceText(const v1::FineTuningJob& job) {
  const std::string name = VisibleLine(ShortName(job.name()));
  if (job.state() == v1::FAILED) {
    return absl::StrCat(
        "roundhouse logs ", name,
        " has what happened; a new job can go on from its "
        "last checkpoint with resume_from_checkpoint: job:",
        VisibleLine(job.output_name().empty() ? name : job.output_name()));
  }
  if (job.state() != v1::PAUSED) return "";
  if (job.reason() == v1::STORAGE_FULL) {
    return absl::StrCat(
        "make room on the server's disk (roundhouse du, "
        "roundhouse prune): it goes on by itself, or now with "
        "roundhouse resume ",
        name);
  }
  return absl::StrCat(
      "roundhouse resume ", name, ": it goes on ",
      job.memory() == v1::KEPT ? "where it is" : "from its last checkpoint");
}

std::string ObstaclesText(const v1::ExplainFineTuningJobResponse& answer) {
  const v1::FineTuningJob& job = answer.job();
  if (IsStopped(job)) {
    const std::string reason = VisibleLine(ReasonText(job));
    const std::string advice = AdviceText(job);
    return absl::StrCat(reason.empty() ? "" : Paragraph("- ", reason),
                        advice.empty() ? "" : Paragraph("- ", advice));
  }
  std::string text;
  for (const v1::Obstacle& obstacle : answer.explanation().obstacles()) {
    if (obstacle.kind() == v1::OBSTACLE_JOBS_BEFORE) {
      text += QueueText(answer.explanation().queue());
      continue;
    }
    text += Paragraph("- ", ObstacleText(obstacle, "it"));
    if (!obstacle.has_memory()) continue;
    const std::string holders = HoldersText(obstacle.memory());
    if (!holders.empty()) text += Paragraph("    held: ", holders);
  }
  return text;
}

// --- what it has ---

std::string DevicesText(const v1::PoolDevices& devices) {
  std::string text = CountText(devices.in_use(), "device");
  absl::StrAppend(&text, devices.in_use() == 1 ? " is in use" : " are in use");
  const std::pair<int, const char*> others[] = {
      {devices.starting(), "starting"},
      {devices.lost(), "lost"},
      {devices.out(), "lent or fenced"}};
  for (const auto& [count, what] : others) {
    if (count > 0) absl::StrAppend(&text, ", ", count, " ", what);
  }
  return text;
}

std::string FairText(const v1::FineTuningJob& job,
                     const v1::DeviceService& service) {
  const bool others = service.jobs() > service.backfill_jobs();
  return job.priority() == v1::BACKFILL && others
             ? "it gets what others leave"
             : absl::StrCat(PercentText(service.fair_share()), " is fair now");
}

std::string ServiceText(const v1::FineTuningJob& job,
                        const v1::DeviceService& service) {
  std::string text;
  const std::string window = ClockText(absl::Seconds(service.window_seconds()));
  if (service.window_seconds() > 0) {
    text += Paragraph(
        "share: ",
        absl::StrCat(
            "in the last ", window, " it had ", PercentText(service.share()),
            " of what devices computed; ", FairText(job, service), ", with ",
            CountText(service.jobs(), "job"), " that ",
            service.jobs() == 1 ? "has" : "have", " work",
            service.urgent_jobs() > 0
                ? absl::StrCat(", ", service.urgent_jobs(), " urgent")
                : "",
            service.backfill_jobs() > 0
                ? absl::StrCat(", ", service.backfill_jobs(), " backfill")
                : ""));
  }
  if (service.step_seconds() > 0) {
    absl::StrAppend(&text, "step: ", SecondsText(service.step_seconds()), "\n");
  }
  if (service.bubble_seconds() > 0) {
    std::vector<std::string> causes;
    for (const v1::WaitedFor& cause : service.causes()) {
      causes.push_back(absl::StrCat(VisibleLine(cause.cause()), " ",
                                    SecondsText(cause.seconds())));
    }
    text += Paragraph(
        "waits: ",
        absl::StrCat("devices waited ", SecondsText(service.bubble_seconds()),
                     " in all, whichever job's work it was",
                     causes.empty()
                         ? ""
                         : absl::StrCat(": ", absl::StrJoin(causes, ", "))));
  }
  if (service.host_seconds() > 0) {
    absl::StrAppend(&text, "host: ", SecondsText(service.host_seconds()),
                    " of operations on the host\n");
  }
  return text;
}

// --- what is expected ---

std::string UnknownText(v1::UnknownTime why) {
  switch (why) {
    case v1::UNKNOWN_TIME_NO_DEVICE:
      return "no device is in use";
    case v1::UNKNOWN_TIME_LENGTH:
      return "how long it, or a job whose end it waits for, still takes was "
             "not measured yet";
    case v1::UNKNOWN_TIME_NEED:
      return "what it, or a job before it, needs of host memory is read when "
             "its turn comes";
    case v1::UNKNOWN_TIME_LIMIT:
      return "a limit has to change or its week to pass";
    case v1::UNKNOWN_TIME_TOO_FAR:
      return "it is too far ahead";
    case v1::UNKNOWN_TIME_NOTHING_STARTS:
      return "no job starts now";
    case v1::UNKNOWN_TIME_WAITS:
      return "it waits for something that takes its own time";
    default:
      return "nobody knows";
  }
}

std::string TimeText(const std::string& what,
                     const google::protobuf::Timestamp& time, absl::Time now) {
  return absl::StrCat(what, " in about ", ClockText(TimeOf(time) - now), " (",
                      WhenText(time), ")");
}

std::string BasisText(const v1::ExpectedTimes& expected) {
  if (expected.step_device_seconds() <= 0) return "";
  return absl::StrCat("with ", CountText(expected.steps_left(), "step"), " of ",
                      SecondsText(expected.step_device_seconds()),
                      " device time each, as measured in ",
                      expected.own_steps() ? "its own"
                      : expected.measured_in().empty()
                          ? "another's job that trained in the same way"
                          : VisibleLine(ShortName(expected.measured_in())));
}

std::string ExpectedText(const v1::ExplainFineTuningJobResponse& answer) {
  const v1::ExpectedTimes& expected = answer.explanation().expected();
  const absl::Time now = TimeOf(answer.explanation().time());
  std::vector<std::string> parts;
  if (expected.has_start()) {
    parts.push_back(TimeText("start", expected.start(), now));
  } else if (expected.start_unknown() != v1::UNKNOWN_TIME_UNSPECIFIED) {
    parts.push_back(absl::StrCat("start not known: ",
                                 UnknownText(expected.start_unknown())));
  }
  if (expected.has_end()) {
    parts.push_back(TimeText("end", expected.end(), now));
  } else if (expected.end_unknown() != v1::UNKNOWN_TIME_UNSPECIFIED &&
             expected.end_unknown() != expected.start_unknown()) {
    parts.push_back(
        absl::StrCat("end not known: ", UnknownText(expected.end_unknown())));
  }
  if (parts.empty()) return "";
  const std::string basis = expected.has_end() ? BasisText(expected) : "";
  if (!basis.empty()) parts.push_back(basis);
  return Paragraph("expected: ", absl::StrJoin(parts, "; "));
}

}  // namespace

std::string WhyText(const v1::ExplainFineTuningJobResponse& answer) {
  const v1::FineTuningJob& job = answer.job();
  const v1::JobExplanation& why = answer.explanation();
  std::string head =
      absl::StrCat(VisibleLine(ShortName(job.name())), " is ", StateText(job));
  if (why.has_since()) {
    absl::StrAppend(&head, " since ", WhenText(why.since()), " (",
                    ClockText(TimeOf(why.time()) - TimeOf(why.since())), ")");
  }
  if (job.total_steps() > 0) {
    absl::StrAppend(&head, ", after step ", job.step(), " of ",
                    job.total_steps());
  }
  const std::string job_class = ClassText(job);
  if (!job_class.empty()) absl::StrAppend(&head, ", ", job_class);
  std::string text = Paragraph("", absl::StrCat(head, "."));
  const std::string obstacles = ObstaclesText(answer);
  text += obstacles.empty() && !IsStopped(job)
              ? "- nothing is in its way: it computes\n"
              : obstacles;
  if (IsStopped(job)) return text;
  text += ServiceText(job, why.service());
  text += ExpectedText(answer);
  text += Paragraph("devices: ", DevicesText(why.devices()));
  return text;
}

}  // namespace roundhouse::client
