// Which weights a sample reads.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_SAMPLE_NAMES_H_
#define ROUNDHOUSE_SERVER_ADMISSION_SAMPLE_NAMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/admission/weight_names.h"
#include "server/sample/sample_source.h"
#include "server/spec/paths.h"

namespace roundhouse {

// What a sample's model means: a job's newest weights, a checkpoint, a model or
// an adapter.  Errors have the field "model".  Any thread; blocks on the disk.
absl::StatusOr<SampleSource> OpenNamedSample(const WeightNames& names,
                                             const FileOpener& files,
                                             const std::string& model,
                                             const NameUser& user);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_SAMPLE_NAMES_H_
