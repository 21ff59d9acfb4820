// For tests: job files of the least that there has to be and more, and what is
// said of them.
#ifndef ROUNDHOUSE_SERVER_SPEC_TEST_SPEC_H_
#define ROUNDHOUSE_SERVER_SPEC_TEST_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/spec/spec.h"

namespace roundhouse {

inline constexpr char kLeast[] = "model_name_or_path: m\ndataset: d.jsonl\n";

inline absl::StatusOr<JobSpec> Parse(const std::string& text) {
  return ParseJobSpec(text, "job.yaml");
}

inline absl::StatusOr<JobSpec> With(const std::string& more) {
  return Parse(absl::StrCat(kLeast, more, "\n"));
}

inline std::string Message(const absl::StatusOr<JobSpec>& result) {
  return std::string(result.status().message());
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_TEST_SPEC_H_
