// The directory in which an export is made, in somebody's folder.
//
// Whoever owns the folder may rename and replace what lies in it while the
// export is written.  So the folder is found once, beneath its root, and
// everything is done through descriptors: of the folder, and of the new
// directory, which nobody else may write in.  What was moved away takes what
// was written with it; nothing is written, renamed or removed elsewhere.
//
// Blocks on the disk.  Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_DIRECTORY_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"
#include "base/model/input_file.h"

namespace roundhouse {

// Begins the name of the directory in which an export is made, beside its
// output; 16 random digits end it, so that it is nobody else's.
inline constexpr char kExportTemporaryPrefix[] = ".roundhouse-export-";

class ExportDirectory {
 public:
  // Makes the empty directory `temporary`, a real path; `files` finds its
  // parent.
  // RESOURCE_EXHAUSTED where the disk has not `bytes` free; NOT_FOUND and
  // others about the parent.
  static absl::StatusOr<std::unique_ptr<ExportDirectory>> Make(
      const FileOpener& files, const std::string& temporary, uint64_t bytes);
  // Removes what was written unless Finish succeeded.
  ~ExportDirectory();
  ExportDirectory(const ExportDirectory&) = delete;
  ExportDirectory& operator=(const ExportDirectory&) = delete;

  // Each makes a new file and returns when it is on the disk.
  // RESOURCE_EXHAUSTED: disk, quota or file size limit; INTERNAL.  All name the
  // path.  Create's file is to be filled by others: OpenForWriting.  A name may
  // begin with kChatTemplatesFolder and a slash; that folder is made then.
  absl::StatusOr<CheckedFile> Create(const std::string& name,
                                     const std::string& begin);
  absl::Status Write(const std::string& name, const std::string& text);
  // Errors as OpenChecked's, too.
  absl::Status Copy(const CheckedFile& file, const std::string& name);

  // The size of a file in it, in bytes.
  absl::StatusOr<uint64_t> SizeOf(const std::string& name) const;

  // Gives it the name `name`, beside it.  ALREADY_EXISTS: something has it;
  // FAILED_PRECONDITION: the directory was moved away.  REQUIRES: once.
  absl::Status Finish(const std::string& name);

  // Removes what an earlier daemon was making at `temporary` when it ended;
  // nothing there, or nothing of ours: OK.
  static absl::Status RemoveLeftover(const FileOpener& files,
                                     const std::string& temporary);

 private:
  ExportDirectory(FoundDirectory parent, std::string name,
                  Descriptor directory);

  std::string PathOf(const std::string& name) const;
  absl::StatusOr<Descriptor> NewFile(const std::string& name);
  absl::Status MakeTemplatesFolder();
  // Whether `name` beside it is this directory.
  bool IsNow(const std::string& name) const;
  void Remove();

  const FoundDirectory parent_;
  const std::string name_;
  const Descriptor directory_;
  Descriptor templates_;  // kChatTemplatesFolder in it, where there is one
  bool finished_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_EXPORT_DIRECTORY_H_
