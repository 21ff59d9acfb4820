#include "server/weights/output_owner.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

// Ours has a hundred bytes.
constexpr size_t kMaxBytes = 4096;

}  // namespace

std::string OutputOwnerJson(const std::string& job, const std::string& uid) {
  const nlohmann::json owner = {{"job", job}, {"job_uid", uid}};
  return owner.dump(2) + "\n";
}

std::string KeptOutputJson(const std::string& job, const std::string& uid,
                           const std::string& project) {
  const nlohmann::json owner = {
      {"job", job}, {"job_uid", uid}, {"project", project}};
  return owner.dump(2) + "\n";
}

std::string ExportOwnerJson(const OutputMark& mark) {
  nlohmann::json owner = nlohmann::json::object();
  if (!mark.project.empty()) owner["project"] = mark.project;
  if (!mark.user.empty()) owner["user"] = mark.user;
  return owner.dump(2) + "\n";
}

OutputMark ReadOutputMark(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/", kOutputOwnerName),
                     std::ios::binary);
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  const auto field = [&json](const char* name) -> std::string {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : "";
  };
  return {field("job_uid"), field("project"), field("user")};
}

}  // namespace roundhouse
