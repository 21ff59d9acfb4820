// Questions about paths that somebody else chose, which never throw: what
// std::filesystem's functions of these names do for a loop of links, a folder
// that may not be searched, or a name that is too long.
//
// Links are followed.  Thread-safe; they block on the disk.
#ifndef ROUNDHOUSE_BASE_PATH_EXISTS_H_
#define ROUNDHOUSE_BASE_PATH_EXISTS_H_

#include <string>

namespace roundhouse {

// False also where it cannot be found out.
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_PATH_EXISTS_H_
