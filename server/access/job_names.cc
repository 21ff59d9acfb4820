#include "server/access/job_names.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/store_records.h"

namespace roundhouse {
namespace {

constexpr absl::string_view kJobsPart = "/fineTuningJobs/";

}  // namespace

std::string JobName(const std::string& project, const std::string& id) {
  return absl::StrCat("projects/", project, "/fineTuningJobs/", id);
}

absl::StatusOr<ParsedJobName> ParseJobName(const std::string& name) {
  if (name.empty()) {
    return FieldError(FieldReason::kInvalidValue, "name", "is missing");
  }
  ParsedJobName parsed{.id = name};
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts.size() == 4 && parts[0] == "projects" && !parts[1].empty() &&
      parts[2] == "fineTuningJobs") {
    parsed = {.id = parts[3], .project = parts[1]};
  }
  if (JobNumber(parsed.id).has_value()) return parsed;
  return RequestError(
      FieldReason::kInvalidValue, "name",
      absl::StrCat("there is no job \"",
                   absl::CHexEscape(parsed.id.substr(0, 80)),
                   "\"; jobs are called job-7 and so on: roundhouse list"));
}

WeightsName ParseWeightsName(const std::string& name) {
  absl::string_view rest = name;
  WeightsName parsed;
  parsed.must_be_job = absl::ConsumePrefix(&rest, "job:");
  if (absl::ConsumePrefix(&rest, "projects/")) {
    const size_t at = rest.find(kJobsPart);
    if (at == absl::string_view::npos) {
      rest = name;
    } else {
      parsed.project = std::string(rest.substr(0, at));
      rest = rest.substr(at + kJobsPart.size());
      parsed.must_be_job = true;
    }
  }
  parsed.job = std::string(rest);
  for (const absl::string_view between : {"/checkpoint-", "/checkpoints/"}) {
    const size_t at = rest.find(between);
    int64_t step = 0;
    if (at != absl::string_view::npos &&
        absl::SimpleAtoi(rest.substr(at + between.size()), &step)) {
      parsed.job = std::string(rest.substr(0, at));
      parsed.step = step;
    }
  }
  return parsed;
}

absl::Status NoSuchJob(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("there is no job \"", name, "\""));
}

absl::StatusOr<JobRecord> FindJob(const JobStore& store,
                                  const std::string& name) {
  auto job = store.Get(name);
  if (job.ok()) return job;
  ASSIGN_OR_RETURN(const auto id, store.FindOutputName(name));
  if (id.has_value()) return store.Get(*id);
  return NoSuchJob(name);
}

}  // namespace roundhouse
