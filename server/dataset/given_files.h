// The files that a dataset helper or text helper may read: opened by the daemon
// beneath their roots, and given to the child as descriptors.  The child opens
// nothing else that people name.
#ifndef ROUNDHOUSE_SERVER_DATASET_GIVEN_FILES_H_
#define ROUNDHOUSE_SERVER_DATASET_GIVEN_FILES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"
#include "base/model/input_file.h"

namespace roundhouse {

struct GivenFile {
  std::string name;  // by which the child asks for it
  CheckedFile file;
};

// Asked when a child is started, beside the event loop; an error is its end.
using GivenFiles = std::function<absl::StatusOr<std::vector<GivenFile>>()>;

// What is there of a tokenizer's files in `directory`, with its config.json,
// and `data_files`, which have to be there.  Errors as files.Open's.  Blocks on
// the disk.
absl::StatusOr<std::vector<GivenFile>> FilesToGive(
    const FileOpener& files, const std::string& directory,
    const std::vector<std::string>& data_files);

// INVALID_ARGUMENT: there are none, which would mean paths.
absl::Status CheckGiven(const std::vector<GivenFile>& given);

// Descriptors of `given`, each for reading, in their order.  Errors as
// OpenChecked's: a file that changed meanwhile is FAILED_PRECONDITION.
absl::StatusOr<std::vector<Descriptor>> OpenGiven(
    const std::vector<GivenFile>& given);

// Whether they are what was given, once the child has read them: its
// descriptors follow a file that is written over.  INVALID_ARGUMENT naming one
// that changed.
absl::Status CheckUnchanged(const std::vector<GivenFile>& given,
                            const std::vector<Descriptor>& descriptors);

// The environment variable that tells the child which descriptor is which; the
// first is `first_descriptor` there.
std::string GivenVariable(const std::vector<GivenFile>& given,
                          int first_descriptor);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_GIVEN_FILES_H_
