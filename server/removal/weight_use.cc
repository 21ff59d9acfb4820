#include "server/removal/weight_use.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"
#include "server/store/store_records.h"
#include "server/store/store_rows.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

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

// Live jobs are found by their states, which have an index; `more` is of SQL.
std::string LiveJobs(const std::string& more = "") {
  return absl::StrCat("SELECT number, resolved FROM jobs WHERE state IN (",
                      LiveStates(), ")", more, " ORDER BY number");
}

// The job's uid, or the result's name: whoever uses something of it writes it.
std::string KeyOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  return parts.size() < 2 ? "" : parts[1];
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

absl::StatusOr<std::vector<std::string>> WeightUse::UsedNames(
    Database* db) const {
  ASSIGN_OR_RETURN(Statement select, db->Prepare(LiveJobs()));
  std::vector<std::string> names;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return names;
    for (const std::string& named : PathsIn(select.Text(1))) {
      std::string name = paths_.Below(named);
      if (!name.empty()) names.push_back(std::move(name));
    }
  }
}

bool WeightUse::IsAmong(const std::string& name,
                        const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& other) {
    return StatePaths::Overlap(name, other);
  });
}

absl::Status WeightUse::CheckUnused(
    Database* db, const std::vector<std::string>& paths) const {
  // Only specs that may name one of them are parsed.
  std::vector<std::string> names;
  std::set<std::string> keys;
  for (const std::string& path : paths) {
    names.push_back(paths_.Below(path));
    keys.insert(KeyOf(names.back()));
  }
  const std::vector<std::string> terms(keys.size(), "instr(resolved, ?) > 0");
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare(LiveJobs(absl::StrCat(
                       " AND (", absl::StrJoin(terms, " OR "), ")"))));
  for (const std::string& key : keys) select.Bind(key);
  std::vector<std::string> users;
  std::string used;
  while (users.size() < kMaxAskedUsers) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    for (const std::string& named : PathsIn(select.Text(1))) {
      const std::string name = paths_.Below(named);
      if (name.empty() || !IsAmong(name, names)) continue;
      const std::string user = NameOfJob(select.Int(0));
      if (users.empty() || users.back() != user) users.push_back(user);
      if (used.empty()) used = name;
    }
  }
  if (users.empty()) return absl::OkStatus();
  return UsedByJobs(used, std::move(users));
}

absl::StatusOr<bool> WeightUse::WasDeleted(Database* db,
                                           const std::string& name) const {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts[0] == "outputs") return IsGoingOutput(db, name);
  // Nobody has deleted anything of a folder that the store does not know.
  ASSIGN_OR_RETURN(const bool deleted,
                   IsTrue(db,
                          absl::StrCat("SELECT 1 FROM jobs WHERE uid = ? AND ",
                                       kJobWasRemoved),
                          parts[1], std::nullopt));
  if (deleted) return true;
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
