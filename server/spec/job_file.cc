#include "server/spec/job_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status Worded(const absl::Status& error, const std::string& field,
                    const std::string& message) {
  return RequestError(error.code(), ErrorReason(error), field, message);
}

// "field: what" and "field[2] is what" with the key in the field's place.
std::string InOwnWords(const absl::Status& error, const std::string& key) {
  const std::string message(error.message());
  const std::string field = ErrorField(error);
  return absl::StartsWith(message, field) ? key + message.substr(field.size())
                                          : absl::StrCat(key, ": ", message);
}

}  // namespace

const WrittenField* JobFile::Find(const std::string& name) const {
  const auto found = written_.find(name);
  return found == written_.end() ? nullptr : &found->second;
}

void JobFile::AddField(const std::string& name, const WrittenField& written) {
  written_.emplace(name, written);
}

void JobFile::AddFault(int line, const absl::Status& fault) {
  faults_.push_back({line, fault});
}

absl::Status JobFile::Located(const absl::Status& error) const {
  const WrittenField* const written = Find(ErrorField(error));
  if (error.ok() || written == nullptr) return error;
  return Worded(error, written->key,
                absl::StrCat(file_name_, ":", written->line, ": ",
                             InOwnWords(error, written->key)));
}

void JobFile::AddFaultOf(const absl::Status& error) {
  const WrittenField* const written = Find(ErrorField(error));
  if (written == nullptr) return AddFault(0, error);
  AddFault(written->line,
           Worded(error, written->key, InOwnWords(error, written->key)));
}

absl::Status JobFile::status() const {
  if (faults_.empty()) return absl::OkStatus();
  std::vector<Fault> sorted = faults_;
  // Faults without a line come last.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Fault& a, const Fault& b) {
                     return a.line != 0 && (b.line == 0 || a.line < b.line);
                   });
  // The file's name stands before the only fault, or over all of them.
  const bool only = sorted.size() == 1;
  std::vector<absl::Status> faults;
  for (const auto& [line, fault] : sorted) {
    const std::string where =
        only        ? absl::StrCat(file_name_,
                            line == 0 ? "" : absl::StrCat(":", line), ": ")
        : line == 0 ? ""
                    : absl::StrCat("line ", line, ": ");
    faults.push_back(
        Worded(fault, ErrorField(fault),
               VisibleLine(absl::StrCat(where, std::string(fault.message())))));
  }
  return FieldErrors(file_name_, faults);
}

void JobFile::WarnOfSharedData() {
  for (const std::string& path : spec_.validation_dataset) {
    if (std::find(spec_.dataset.begin(), spec_.dataset.end(), path) ==
        spec_.dataset.end()) {
      continue;
    }
    AddWarning(absl::StrCat(
        path,
        " is in dataset and in validation_dataset: eval_loss does not "
        "say how the model does on new data"));
  }
}

void JobFile::AddWarning(const std::string& what) {
  warnings_.push_back(VisibleLine(absl::StrCat(file_name_, ": ", what)));
}

std::vector<std::pair<const char*, std::string*>> PathsToUpload(JobSpec* spec) {
  std::vector<std::pair<const char*, std::string*>> paths;
  for (std::string& path : spec->dataset) paths.emplace_back("dataset", &path);
  for (std::string& path : spec->validation_dataset) {
    paths.emplace_back("validation_dataset", &path);
  }
  if (!spec->adapter_name_or_path.empty()) {
    paths.emplace_back("adapter_name_or_path", &spec->adapter_name_or_path);
  }
  return paths;
}

}  // namespace roundhouse
