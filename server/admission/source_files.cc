#include "server/admission/source_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/model/directory.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

absl::Status Changed(const std::string& path, const std::string& how) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": ", how,
                   " since the job was submitted; submit it "
                   "again"));
}

}  // namespace

std::string SourceFilesToJson(const SourceFiles& files) {
  Json json = Json::array();
  for (const CheckedFile& file : files) {
    json.push_back({{"root", file.root},
                    {"path", file.path},
                    {"inode", file.identity.inode},
                    {"size_bytes", file.identity.size_bytes},
                    {"mtime_ns", file.identity.mtime_ns}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<SourceFiles> SourceFilesFromJson(const std::string& text) {
  SourceFiles files;
  if (text.empty()) return files;
  try {
    for (const Json& file : Json::parse(text)) {
      files.push_back(
          {.root = file.at("root").get<std::string>(),
           .path = file.at("path").get<std::string>(),
           .identity = {.inode = file.at("inode").get<uint64_t>(),
                        .size_bytes = file.at("size_bytes").get<uint64_t>(),
                        .mtime_ns = file.at("mtime_ns").get<int64_t>()}});
    }
  } catch (const Json::exception& error) {
    return absl::DataLossError(
        absl::StrCat("the job's list of files: ", error.what()));
  }
  return files;
}

absl::Status CheckUnchanged(const SourceFiles& then, const SourceFiles& now) {
  if (then.empty()) return absl::OkStatus();
  for (const CheckedFile& file : now) {
    const auto known = std::find_if(
        then.begin(), then.end(),
        [&](const CheckedFile& other) { return other.path == file.path; });
    if (known == then.end()) return Changed(file.path, "came");
    if (!IsSame(known->identity, file.identity)) {
      return Changed(file.path, "changed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokenizerIsThere(const SourceFiles& then,
                                   const SourceFiles& now,
                                   const std::string& model) {
  for (const CheckedFile& file : then) {
    const std::string name = TokenizerFileName(file.path);
    if (file.path != absl::StrCat(model, "/", name) || !IsTokenizerFile(name)) {
      continue;
    }
    const bool there = std::any_of(
        now.begin(), now.end(),
        [&](const CheckedFile& other) { return other.path == file.path; });
    if (!there) return Changed(file.path, "went");
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
