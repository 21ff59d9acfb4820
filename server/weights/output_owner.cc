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

std::string OutputOwner(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/", kOutputOwnerName),
                     std::ios::binary);
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("job_uid")) return "";
  const auto& uid = json["job_uid"];
  return uid.is_string() ? uid.get<std::string>() : "";
}

}  // namespace roundhouse
