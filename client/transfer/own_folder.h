// A folder that downloads arrive in, which a file of ours in it tells from what
// the user has of that name: only such a one is ever removed.
//
// Blocking.  Errors are kResourceExhausted where the disk is full, else
// kInvalidArgument, with the path.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_OWN_FOLDER_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_OWN_FOLDER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace roundhouse::client {

// No upload and no output has a name that begins with a '.'.
inline constexpr char kFolderKeyName[] = ".roundhouse";

// What a new directory does to one of its name.
enum class WhatIsThere { kStays, kGoes };

// renameat2 of two paths: 0, or errno.
using RenameCall = std::function<int(const std::string& from,
                                     const std::string& to, unsigned flags)>;
int RenameOnDisk(const std::string& from, const std::string& to,
                 unsigned flags);

absl::Status DiskError(const std::string& path, int error);
absl::Status SyncPath(const std::string& path);

// Nothing of that name is there then.  kAlreadyExists, and nothing is changed:
// it is neither empty nor one with our file.
absl::Status RemoveOwnFolder(const std::string& folder);

// Gives the folder the name `directory`, whole; our file in it goes last.  A
// file system without RENAME_NOREPLACE and RENAME_EXCHANGE does with two plain
// renames.  kAlreadyExists: something is there and is kept.
absl::Status PublishFolder(const std::string& folder,
                           const std::string& directory, WhatIsThere what,
                           const RenameCall& rename = RenameOnDisk);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_OWN_FOLDER_H_
