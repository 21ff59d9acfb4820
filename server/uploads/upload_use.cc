#include "server/uploads/upload_use.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/job_state.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// Names that a message shows.
constexpr size_t kMaxShown = 5;
constexpr size_t kIdDigits = 32;

std::string LiveStates() {
  std::vector<int> states;
  for (const JobState state : AllJobStates()) {
    if (!IsFinal(state)) states.push_back(static_cast<int>(state));
  }
  return absl::StrJoin(states, ", ");
}

// As it stands in a text within JSON.
std::string InJson(const std::string& text) {
  const std::string quoted = nlohmann::json(text).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

absl::Status CheckUnused(Database* db, const UploadRecord& record) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare(absl::StrCat(
                       "SELECT number FROM jobs WHERE state IN (", LiveStates(),
                       ") AND instr(resolved, ?) > 0 "
                       "ORDER BY number LIMIT ?")));
  select.Bind(record.id).Bind(static_cast<int64_t>(kMaxShown + 1));
  std::vector<std::string> users;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    users.push_back(NameOfJob(select.Int(0)));
  }
  if (users.empty()) return absl::OkStatus();
  const bool more = users.size() > kMaxShown;
  users.resize(std::min(users.size(), kMaxShown));
  return absl::FailedPreconditionError(
      absl::StrCat(record.reference(), " is used by jobs that have not ended: ",
                   absl::StrJoin(users, ", "), more ? " ..." : ""));
}

absl::Status CheckNamedUploads(Database* db, const std::string& versions,
                               const std::string& spec) {
  const std::string folder = InJson(versions) + "/";
  for (size_t at = spec.find(folder); at != std::string::npos;
       at = spec.find(folder, at + 1)) {
    const std::string id = spec.substr(at + folder.size(), kIdDigits);
    ASSIGN_OR_RETURN(
        Statement select,
        db->Prepare("SELECT state FROM uploads WHERE id = ? AND state = ?"));
    select.Bind(id).Bind(static_cast<int64_t>(UploadState::kFinished));
    ASSIGN_OR_RETURN(const bool there, select.Step());
    if (there) continue;
    return RequestError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                        "upload",
                        absl::StrCat("upload ", id,
                                     ", which the job names, was deleted "
                                     "meanwhile; upload it again"));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
