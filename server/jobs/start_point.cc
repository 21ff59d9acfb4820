#include "server/jobs/start_point.h"

#include <utility>

#include "absl/strings/str_cat.h"

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

}  // namespace roundhouse
