#include "server/run/finish_mark.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/files/sealed_json.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr uint64_t kMaxBytes = 4096;

int64_t StepOf(const std::string& text) {
  int64_t step = 0;
  if (CheckSeal(text) == Seal::kNone) {
    return absl::SimpleAtoi(text, &step) ? step : 0;
  }
  if (CheckSeal(text) == Seal::kBroken) return 0;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto found = json.is_object() ? json.find("step") : json.end();
  return found != json.end() && found->is_number_integer()
             ? found->get<int64_t>()
             : 0;
}

}  // namespace

absl::Status WriteFinishMark(const std::string& path, int64_t step) {
  return WriteFileDurably(
      kFinishMark, path,
      SealJson(nlohmann::json({{"step", step}}).dump() + "\n"));
}

absl::StatusOr<std::optional<int64_t>> ReadFinishMark(const std::string& path) {
  const auto text = ReadWholeFile(kFinishMark, path, kMaxBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (absl::IsUnavailable(text.status())) return text.status();
  if (!text.ok()) {
    return absl::DataLossError(std::string(text.status().message()));
  }
  const int64_t step = StepOf(*text);
  if (step > 0) return step;
  return absl::DataLossError(absl::StrCat(path, ": holds no step"));
}

}  // namespace roundhouse
