#include "server/uploads/upload_use.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

constexpr size_t kIdDigits = 32;

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
  select.Bind(record.id).Bind(static_cast<int64_t>(kMaxAskedUsers));
  std::vector<std::string> users;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    users.push_back(NameOfJob(select.Int(0)));
  }
  if (users.empty()) return absl::OkStatus();
  return UsedByJobs(record.reference(), std::move(users));
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
