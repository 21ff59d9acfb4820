// The files that a job file's dataset means: each name is a file, a folder
// whose files are the shards of one dataset, or a pattern of file names.
//
// Pure functions over a FileOpener; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_DATA_FILES_H_
#define ROUNDHOUSE_SERVER_SPEC_DATA_FILES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/input_file.h"
#include "server/spec/paths.h"

namespace roundhouse {

// Files of one field.  The dataset helper holds each, open, and is told
// their names in one variable of its environment.
inline constexpr size_t kMaxDataFiles = 128;
inline constexpr size_t kMaxDataNamesBytes = 48 << 10;

// A path of a job file's field as DataRoots::Resolve gives it; thread-safe.
using PathResolver = std::function<absl::StatusOr<std::string>(
    const std::string& field, const std::string& path, PathKind kind)>;

// The absolute names of all files, those of a folder or pattern by the numbers
// and letters of their names.  INVALID_ARGUMENT naming the field and what is
// wrong: no such file, nothing in a folder that is a dataset by its name,
// several splits in one folder, too many.
absl::StatusOr<std::vector<std::string>> FindDataFiles(
    const PathResolver& resolve, const FileOpener& files,
    const std::string& field, const std::vector<std::string>& names);

// Whether `a` comes before `b`: as letters, but runs of digits as numbers.
bool ComesBefore(const std::string& a, const std::string& b);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_DATA_FILES_H_
