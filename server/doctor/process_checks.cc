#include "server/doctor/process_checks.h"

#include "absl/strings/str_cat.h"
#include "server/workers/descriptor_limit.h"

namespace roundhouse {
namespace {

// What the dynamic loader, and shells, exit with.
constexpr int kNotStarted = 127;

// How it ended, where it is not as it should have.
std::string EndText(const ProgramEnd& run) {
  if (!run.status.ok()) return std::string(run.status.message());
  const std::string how = run.exit_status < 0
                              ? "was killed by a signal"
                              : absl::StrCat("exited ", run.exit_status);
  return run.last_line.empty() ? how : absl::StrCat(how, ": ", run.last_line);
}

bool Succeeded(const ProgramEnd& run) {
  return run.status.ok() && run.exit_status == 0;
}

}  // namespace

const char kHelperModules[] = R"(
import importlib.metadata, platform, tokenizers, jinja2, markupsafe
import pyarrow.parquet
print("Python " + platform.python_version(), *(
    name + " " + importlib.metadata.version(name)
    for name in ("tokenizers", "jinja2", "pyarrow")), sep=", "))";

Finding CheckDescriptors(std::optional<uint64_t> limit) {
  Finding finding = {
      .name = "descriptors",
      .found = limit.has_value()
                   ? absl::StrCat("at most ", *limit, " a process")
                   : "unlimited"};
  if (limit.has_value() && *limit < kFewDescriptors) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = absl::StrCat(
        "LimitNOFILE=", kMostDescriptors, " in the unit, or ulimit -n ",
        kMostDescriptors, ": fewer clients are let in");
  }
  return finding;
}

Finding CheckRealtime(RealtimeWish wish, RealtimeRight right) {
  Finding finding = {.name = "priorities"};
  if (wish == RealtimeWish::kOff) {
    finding.found = "--realtime=off";
  } else if (right == RealtimeRight::kPermitted) {
    finding.found = "threads that pass slots on may go first";
  } else {
    finding.found = "the kernel refuses real-time priority";
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "LimitRTPRIO=2 in the unit, or rtprio 2 in limits.conf: else dispatch "
        "waits for compute where cores are busy";
  }
  return finding;
}

Finding CheckLibtorch(const std::string& program, const ProgramEnd& run) {
  Finding finding = {.name = "LibTorch",
                     .found = absl::StrCat(program, " loads it")};
  if (!run.status.ok() || run.exit_status == kNotStarted ||
      run.exit_status < 0) {
    finding.found = absl::StrCat(program, ": ", EndText(run));
    finding.verdict = Verdict::kProblem;
    finding.remedy =
        "deploy/install-deps, then deploy/install-service, which installs "
        "torch's wheel beside the worker";
  }
  return finding;
}

Finding CheckPython(const std::string& program, const ProgramEnd& run) {
  Finding finding = {.name = "Python", .found = run.last_output};
  if (!Succeeded(run)) {
    finding.found = absl::StrCat(program, ": ", EndText(run));
    finding.verdict = Verdict::kProblem;
    finding.remedy =
        "deploy/install-deps makes the environment; --python names another";
  }
  return finding;
}

Finding CheckDatasetHelper(const std::string& script, const ProgramEnd& run) {
  Finding finding = {.name = "dataset helper", .found = script};
  if (!Succeeded(run)) {
    absl::StrAppend(&finding.found, ": ", EndText(run));
    finding.verdict = Verdict::kProblem;
    finding.remedy =
        "deploy/install-service copies it anew; --prepare-script names another";
  }
  return finding;
}

}  // namespace roundhouse
