// Removes what is under a name.
#ifndef ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_
#define ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_

#include <string>

#include "absl/status/status.h"
#include "base/files/file_site.h"

namespace roundhouse {

// Folders within folders; nothing that is removed here has more than three.
inline constexpr int kMaxRemovedDepth = 64;

// The file, the link (never what it leads to), or the folder with all that is
// in it; `path` ends with a name, not with a slash.  Where something can't be
// removed the rest goes all the same, and the first error is answered: codes as
// FileError's, FAILED_PRECONDITION for more than kMaxRemovedDepth folders.
// Nothing there: OK.  Blocking; thread-safe.
absl::Status RemoveTree(FileSite site, const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_REMOVE_TREE_H_
