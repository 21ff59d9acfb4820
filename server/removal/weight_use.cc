#include "server/removal/weight_use.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/job_state.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"
#include "server/store/store_records.h"
#include "server/store/store_rows.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

// Names that a message shows.
constexpr size_t kMaxShown = 5;
// Fields of a spec that name weights.
constexpr const char* kFields[] = {"model_name_or_path", "adapter_name_or_path",
                                   "resume_from_checkpoint"};

std::vector<std::string> PathsIn(const std::string& spec) {
  std::vector<std::string> paths;
  const auto json = nlohmann::json::parse(spec, nullptr, false);
  if (!json.is_object()) return paths;
  for (const char* field : kFields) {
    const auto found = json.find(field);
    if (found != json.end() && found->is_string()) {
      paths.push_back(found->get<std::string>());
    }
  }
  return paths;
}

// Live jobs are found by their states, which have an index.
std::string LiveJobs() {
  std::vector<int> states;
  for (const JobState state : AllJobStates()) {
    if (!IsFinal(state)) states.push_back(static_cast<int>(state));
  }
  return absl::StrCat("SELECT number, resolved FROM jobs WHERE state IN (",
                      absl::StrJoin(states, ", "), ") ORDER BY number");
}

absl::StatusOr<bool> IsTrue(Database* db, const std::string& sql,
                            const std::string& uid,
                            std::optional<int64_t> step) {
  ASSIGN_OR_RETURN(Statement select, db->Prepare(sql));
  select.Bind(uid);
  if (step.has_value()) select.Bind(*step);
  return select.Step();
}

}  // namespace

absl::Status WeightUse::CheckUnused(
    Database* db, const std::vector<std::string>& paths) const {
  ASSIGN_OR_RETURN(Statement select, db->Prepare(LiveJobs()));
  std::vector<std::string> users;
  std::string used;
  while (users.size() <= kMaxShown) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    const std::string resolved = select.Text(1);
    for (const std::string& named : PathsIn(resolved)) {
      const std::string name = paths_.Below(named);
      if (name.empty()) continue;
      for (const std::string& path : paths) {
        if (!StatePaths::Overlap(name, paths_.Below(path))) continue;
        const std::string user = NameOfJob(select.Int(0));
        if (users.empty() || users.back() != user) users.push_back(user);
        if (used.empty()) used = name;
      }
    }
  }
  if (users.empty()) return absl::OkStatus();
  const bool more = users.size() > kMaxShown;
  if (more) users.resize(kMaxShown);
  return absl::FailedPreconditionError(
      absl::StrCat(used, " is used by jobs that have not ended: ",
                   absl::StrJoin(users, ", "), more ? " ..." : ""));
}

absl::StatusOr<bool> WeightUse::WasDeleted(Database* db,
                                           const std::string& name) const {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts[0] == "outputs") return IsGoingOutput(db, name);
  ASSIGN_OR_RETURN(
      const bool there,
      IsTrue(db,
             absl::StrCat("SELECT 1 FROM jobs WHERE uid = ? AND ", kJobIsThere),
             parts[1], std::nullopt));
  if (!there) return true;
  const auto step = CheckpointStepOf(name);
  if (!step.has_value()) return false;
  return IsTrue(db,
                "SELECT 1 FROM checkpoints WHERE job = (SELECT number FROM "
                "jobs WHERE uid = ?) AND step = ? AND path = ''",
                parts[1], step);
}

// One that goes may be on the disk for a while.
absl::StatusOr<bool> WeightUse::IsGoingOutput(Database* db,
                                              const std::string& name) const {
  ASSIGN_OR_RETURN(
      Statement select,
      db->Prepare(absl::StrCat("SELECT output_path FROM jobs WHERE ",
                               kJobWasRemoved, " AND output_path <> ''")));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return false;
    const std::string going = paths_.Below(select.Text(0));
    if (StatePaths::Overlap(name, going)) return true;
  }
}

absl::Status WeightUse::CheckThere(Database* db,
                                   const std::string& spec) const {
  for (const std::string& path : PathsIn(spec)) {
    const std::string name = paths_.Below(path);
    if (name.empty()) continue;
    ASSIGN_OR_RETURN(const bool deleted, WasDeleted(db, name));
    if (!deleted && PathExists(absl::StrCat(state_dir_, "/", name))) continue;
    return RequestError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                        "weights",
                        absl::StrCat(path,
                                     ", which the job names, was deleted "
                                     "meanwhile"));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
