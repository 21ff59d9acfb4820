// Removes a name and all that lies under it.
#ifndef ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_
#define ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_

#include <string>

#include "absl/status/status.h"
#include "base/files/file_site.h"

namespace roundhouse {

// So many folders may lie within each other; ours never have more than three.
inline constexpr int kMaxRemovedDepth = 64;

// Removes a file, a link (never what it leads to), or a folder with all that is
// in it.  It is OK where nothing is there, which no fault strikes.  `path` ends
// with a name, not with a slash.
//
// Where something can't be removed the rest goes all the same, and the first
// error is answered.  Its code is FileError's, or FAILED_PRECONDITION for more
// than kMaxRemovedDepth folders.  Blocking; thread-safe.
absl::Status RemoveTree(FileSite site, const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_
