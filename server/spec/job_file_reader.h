// Private to server/spec: the reader behind ReadJobFile and
// ResolvedSpec::FromJson.
#ifndef ROUNDHOUSE_SERVER_SPEC_JOB_FILE_READER_H_
#define ROUNDHOUSE_SERVER_SPEC_JOB_FILE_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/spec/job_file.h"
#include "server/spec/spec_value.h"

namespace roundhouse {

// As ReadJobFile, which reads what callers wrote.
absl::StatusOr<JobFile> ReadJobText(const std::string& text,
                                    const std::string& file_name,
                                    SpecWriter writer);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_JOB_FILE_READER_H_
