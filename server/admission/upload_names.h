// What "dataset:NAME" and "model:NAME" mean, and whose an upload is: uploads
// belong to projects.
//
// Thread-safe.  Does not block.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_UPLOAD_NAMES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_UPLOAD_NAMES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/access/caller.h"
#include "server/spec/paths.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// Who uses a name.  What jobs and projects have takes this role in the project:
// kViewer looks at it, kMember makes something of it.
struct NameUser {
  Caller caller;
  Role role = Role::kMember;
  // In it an upload is looked for whose name says none; "": the one that the
  // caller means by none (server/access/accounts.h, ProjectMeant).
  std::string project = {};
};

class UploadNames {
 public:
  // `uploads` outlives it; null: this server has none.
  explicit UploadNames(const Uploads* uploads) : uploads_(uploads) {}

  // The directory; nullopt: `text` is no such name.  kInvalidArgument naming
  // the field: there is none, or it is not what `kind` wants;
  // kPermissionDenied.
  absl::StatusOr<std::optional<std::string>> Resolve(
      const std::string& field, const std::string& text, PathKind kind,
      const NameUser& user) const;

  // Whether uploads lie in this folder, each by its id.
  bool LieIn(const std::string& folder) const {
    return uploads_ != nullptr && uploads_->directory() == folder;
  }
  // The project of the upload with this id; "": there is none.
  std::string ProjectOf(const std::string& id) const;

 private:
  const Uploads* const uploads_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_UPLOAD_NAMES_H_
