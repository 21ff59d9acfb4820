#include "server/admission/upload_names.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "server/access/accounts.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
absl::StatusOr<std::optional<std::string>> UploadNames::Resolve(
    const std::string& field, const std::string& text, PathKind kind,
    const NameUser& user) const {
  const auto reference = ParseUploadReference(text);
  if (!reference.ok()) {
    return FieldError(FieldReason::kInvalidValue, field,
                      reference.status().message());
  }
  if (!reference->has_value()) return std::optional<std::string>();
  const UploadReference& name = **reference;
  const auto meant = ProjectMeant(
      user.caller, name.project.empty() ? user.project : name.project);
  if (!meant.ok()) {
    return FieldError(ErrorReason(meant.status()), field,
                      absl::StrCat(text, ": ", meant.status().message()));
  }
  const std::string& project = *meant;
  if (user.caller.RoleIn(project) < user.role) {
    return FieldError(
        absl::StatusCode::kPermissionDenied, FieldReason::kPermissionDenied,
        field,
        absl::StrCat(text, ": this takes a ", RoleName(user.role),
                     " of project ", project, ", which you are not"));
  }
  absl::StatusOr<FoundUpload> found =
      absl::NotFoundError("this server has no uploads");
  if (uploads_ != nullptr) {
    found = uploads_->Find(name.kind, project, name.name, name.version);
  }
  if (!found.ok()) {
    return FieldError(FieldReason::kPathNotFound, field,
                      absl::StrCat(text, ": ", found.status().message()));
  }
  if (kind != PathKind::kFile) {
    return std::optional<std::string>(found->directory);
  }
  return FieldError(FieldReason::kInvalidValue, field,
                    absl::StrCat(text, " is a folder"));
}

std::string UploadNames::ProjectOf(const std::string& id) const {
  const auto record = uploads_->Record(id);
  return record.ok() ? record->project : "";
}

}  // namespace roundhouse
