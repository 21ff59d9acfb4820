// The files that a job was submitted with, as they were then: what its row in
// the store keeps of them, and whether they still are what was checked.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_SOURCE_FILES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_SOURCE_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"

namespace roundhouse {

using SourceFiles = std::vector<CheckedFile>;

// A JSON array; without devices, whose numbers change with a reboot.
std::string SourceFilesToJson(const SourceFiles& files);
// "": none, of a job that an earlier version took.  DATA_LOSS.
absl::StatusOr<SourceFiles> SourceFilesFromJson(const std::string& json);

// OK where each of `now` is among `then` in the same state; else
// FAILED_PRECONDITION naming the first that is not: it changed, or came, since
// the job was submitted.  `then` without any: OK.
absl::Status CheckUnchanged(const SourceFiles& then, const SourceFiles& now);

// OK where each file of a tokenizer that `then` has directly in `model` is
// among `now`; else FAILED_PRECONDITION naming the one that went.
absl::Status CheckTokenizerIsThere(const SourceFiles& then,
                                   const SourceFiles& now,
                                   const std::string& model);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_SOURCE_FILES_H_
