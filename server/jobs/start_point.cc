#include "server/jobs/start_point.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/model/json.h"

namespace roundhouse {
namespace {

StartPoint FirstGood(const std::vector<std::string>& candidates) {
  StartPoint start;
  for (const std::string& path : candidates) {
    auto manifest = ReadCheckpoint(path, true);
    if (manifest.ok()) {
      start.path = path;
      start.manifest = *std::move(manifest);
      return start;
    }
    start.notes.push_back(absl::StrCat(
        "checkpoint ", path,
        " is not used: ", std::string(manifest.status().message())));
    const absl::Status moved = QuarantineCheckpoint(path);
    if (!moved.ok()) start.notes.push_back(std::string(moved.message()));
  }
  return start;
}

}  // namespace

StartPoint ChooseStart(const std::vector<std::string>& own,
                       const std::string& named) {
  StartPoint start = FirstGood(own);
  start.own = !start.path.empty();
  if (start.own || named.empty()) return start;
  auto manifest = ReadCheckpoint(named, true);
  start.status = manifest.status();
  if (!manifest.ok()) return start;
  start.path = named;
  start.manifest = *std::move(manifest);
  return start;
}

std::string ReadHistoryText(const FileOpener& files, const std::string& path) {
  auto text = ReadWholeFile(files, path, kMaxHistoryBytes);
  if (text.ok()) return *std::move(text);
  if (!absl::IsNotFound(text.status())) RH_LOG(kWarning) << text.status();
  return "";
}

nlohmann::json ReadTrainerState(const FileOpener& files,
                                const std::string& path) {
  const std::string text = ReadHistoryText(files, path);
  if (text.empty()) return nlohmann::json::object();
  const absl::Status checked =
      CheckJson(text, path, {kMaxHistoryBytes, kMaxJsonDepth, kMaxJsonKeys});
  if (!checked.ok()) RH_LOG(kWarning) << checked;
  auto state = checked.ok() ? nlohmann::json::parse(text, nullptr, false)
                            : nlohmann::json::object();
  return state.is_object() ? state : nlohmann::json::object();
}

}  // namespace roundhouse
