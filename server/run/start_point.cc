#include "server/run/start_point.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/model/json.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::Status CheckData(const CheckpointManifest& manifest,
                       const std::string& dataset_sha256) {
  if (dataset_sha256.empty() || manifest.dataset_sha256 == dataset_sha256) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      kManifestName, ": says that it was trained on tokens with SHA-256 ",
      manifest.dataset_sha256, ", the job's have ", dataset_sha256));
}

enum class Whose { kOwn, kNamed };

// Into `start`, all or nothing.
absl::Status Take(const std::string& path, const StartOptions& options,
                  Whose whose, StartPoint& start) {
  ASSIGN_OR_RETURN(CheckpointManifest manifest,
                   VerifyCheckpoint(*options.files, path));
  const bool own = whose == Whose::kOwn;
  if (own) RETURN_IF_ERROR(CheckData(manifest, options.dataset_sha256));
  ASSIGN_OR_RETURN(
      std::string state,
      CheckpointText(*options.files, path, manifest, "trainer_state.json"));
  ASSIGN_OR_RETURN(
      std::string samples,
      CheckpointText(*options.files, path, manifest, "samples.jsonl"));
  ASSIGN_OR_RETURN(start.parts, options.parts(path, manifest.step));
  start.path = path;
  start.manifest = std::move(manifest);
  start.trainer_state = std::move(state);
  start.samples = std::move(samples);
  start.own = own;
  return absl::OkStatus();
}

void TakeOwn(const StartOptions& options, StartPoint& start) {
  absl::Status unread;  // of the newest that the disk does not give
  for (const std::string& path : options.own) {
    const absl::Status taken = Take(path, options, Whose::kOwn, start);
    if (taken.ok()) return;
    if (absl::IsUnavailable(taken)) {
      start.status = taken;
      return;
    }
    start.notes.push_back(absl::StrCat(
        "checkpoint ", path, " is not used: ", std::string(taken.message())));
    if (absl::IsInternal(taken)) {
      if (unread.ok()) unread = taken;
      continue;
    }
    start.corrupt.push_back(path);
  }
  start.status = unread;
}

}  // namespace

StartPoint ChooseStart(const StartOptions& options) {
  StartPoint start;
  TakeOwn(options, start);
  if (start.own || !start.status.ok() || options.named.empty()) return start;
  const absl::Status taken = Take(options.named, options, Whose::kNamed, start);
  const bool of_disk = absl::IsUnavailable(taken) || absl::IsInternal(taken);
  if (!taken.ok() && !of_disk) {
    start.status = absl::DataLossError(std::string(taken.message()));
  } else {
    start.status = taken;
  }
  return start;
}

std::vector<std::string> MoveAside(const std::vector<std::string>& corrupt) {
  std::vector<std::string> failures;
  for (const std::string& path : corrupt) {
    const absl::Status moved = QuarantineCheckpoint(path);
    if (!moved.ok()) failures.push_back(std::string(moved.message()));
  }
  return failures;
}

nlohmann::json ParseTrainerState(const std::string& text,
                                 const std::string& path) {
  if (text.empty()) return nlohmann::json::object();
  const absl::Status checked =
      CheckJson(text, path, {kMaxTextBytes, kMaxJsonDepth, kMaxJsonKeys});
  if (!checked.ok()) RH_LOG(kWarning) << checked;
  auto state = checked.ok() ? nlohmann::json::parse(text, nullptr, false)
                            : nlohmann::json::object();
  return state.is_object() ? state : nlohmann::json::object();
}

}  // namespace roundhouse
