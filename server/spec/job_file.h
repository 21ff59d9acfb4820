// A job file as it was written: the spec that it makes, all that is wrong with
// it, and what it says that means nothing here.
//
// Pure functions and values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_SPEC_JOB_FILE_H_
#define ROUNDHOUSE_SERVER_SPEC_JOB_FILE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/spec/spec.h"

namespace roundhouse {

// A field in the words of the file: its name or an alias, and where it stands.
struct WrittenField {
  std::string key;
  int line = 0;  // from 1
};

class JobFile {
 public:
  JobFile(std::string file_name, JobSpec spec)
      : file_name_(std::move(file_name)), spec_(std::move(spec)) {}

  // What has an error, or is not given, has its default.
  const JobSpec& spec() const { return spec_; }
  JobSpec& spec() { return spec_; }

  // By the vocabulary's name; null: the file does not give it.
  const WrittenField* Find(const std::string& name) const;
  void AddField(const std::string& name, const WrittenField& written);

  // Something wrong; from FieldError, with a message that begins with the
  // field's name.  `line` 0: with the file as a whole.
  void AddFault(int line, const absl::Status& fault);
  // An error of somebody who knows fields by the vocabulary's names, as
  // FieldError made it: told with the file's name, line and word for the field.
  absl::Status Located(const absl::Status& error) const;
  void AddFaultOf(const absl::Status& error);

  // All faults in one answer, by line (spec_error.h, FieldErrors); OK: none.
  absl::Status status() const;

  // Each a sentence that begins with the file's name.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void AddWarning(const std::string& what);
  // Warns of each file that is trained on and validated with, once the paths
  // are resolved.
  void WarnOfSharedData();

 private:
  struct Fault {
    int line;
    absl::Status status;
  };

  std::string file_name_;
  JobSpec spec_;
  std::map<std::string, WrittenField> written_;
  std::vector<Fault> faults_;
  std::vector<std::string> warnings_;
};

// The fields that may name files of the machine that the job file comes from,
// which are uploaded, and their paths in `spec`.
std::vector<std::pair<const char*, std::string*>> PathsToUpload(JobSpec* spec);

// kInvalidArgument for what cannot be read at all: syntax, limits.  All else is
// a fault of the file: unknown fields (with the nearest name), one thing under
// two names, wrong types, values out of range, missing fields, values that a
// later part brings.
absl::StatusOr<JobFile> ReadJobFile(const std::string& text,
                                    const std::string& file_name);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_JOB_FILE_H_
