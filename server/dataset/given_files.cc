#include "server/dataset/given_files.h"

#include <sys/stat.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/model/directory.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace roundhouse {

absl::StatusOr<std::vector<GivenFile>> FilesToGive(
    const FileOpener& files, const std::string& directory,
    const std::vector<std::string>& data_files) {
  std::vector<std::string> names = data_files;
  for (const std::string& name : TokenizerFilesIn(files, directory)) {
    names.push_back(absl::StrCat(directory, "/", name));
  }
  const std::string config = absl::StrCat(directory, "/config.json");
  if (files.IsThere(config)) names.push_back(config);
  std::vector<GivenFile> given;
  for (std::string& name : names) {
    ASSIGN_OR_RETURN(const InputFile file, files.Open(name));
    given.push_back({std::move(name), file.checked()});
  }
  return given;
}

absl::Status CheckGiven(const std::vector<GivenFile>& given) {
  if (!given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the model's folder has no tokenizer files any more");
}

absl::StatusOr<std::vector<Descriptor>> OpenGiven(
    const std::vector<GivenFile>& given) {
  std::vector<Descriptor> descriptors;
  for (const GivenFile& one : given) {
    ASSIGN_OR_RETURN(Descriptor descriptor, OpenChecked(one.file));
    descriptors.push_back(std::move(descriptor));
  }
  return descriptors;
}

absl::Status CheckUnchanged(const std::vector<GivenFile>& given,
                            const std::vector<Descriptor>& descriptors) {
  for (size_t i = 0; i < given.size(); ++i) {
    struct stat now;
    const bool known = fstat(descriptors[i].get(), &now) == 0;
    const absl::Status same =
        CheckSame(given[i].file, known ? IdentityOf(now) : FileIdentity());
    if (!same.ok()) {
      return absl::InvalidArgumentError(same.message());
    }
  }
  return absl::OkStatus();
}

std::string GivenVariable(const std::vector<GivenFile>& given,
                          int first_descriptor) {
  nlohmann::json json = nlohmann::json::array();
  for (size_t i = 0; i < given.size(); ++i) {
    json.push_back({given[i].name, first_descriptor + static_cast<int>(i)});
  }
  // Bytes of a name that are not UTF-8 come as Python has them.
  return absl::StrCat(
      "ROUNDHOUSE_GIVEN_FILES=",
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore));
}

}  // namespace roundhouse
