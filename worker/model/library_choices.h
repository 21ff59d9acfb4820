// What libraries that compute must not choose by themselves.
#ifndef ROUNDHOUSE_WORKER_MODEL_LIBRARY_CHOICES_H_
#define ROUNDHOUSE_WORKER_MODEL_LIBRARY_CHOICES_H_

#include "absl/status/status.h"

namespace roundhouse::worker {

// First in a program's main: libraries read these choices from the environment
// when they are loaded, so unless they are there the process starts itself anew
// with `argv`.  INTERNAL: it could not.
absl::Status FixLibraryChoices(char** argv);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_LIBRARY_CHOICES_H_
