#include "base/files/sealed_json.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files/durable_file.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr absl::string_view kBefore = "{\"manifest_sha256\": \"";
constexpr absl::string_view kAfter = "\",";
constexpr size_t kDigits = 64;

}  // namespace

std::string SealJson(absl::string_view object) {
  ROUNDHOUSE_CHECK(absl::ConsumePrefix(&object, "{"));
  return absl::StrCat(kBefore, Sha256Of(object), kAfter, object);
}

Seal CheckSeal(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kBefore)) return Seal::kNone;
  if (text.size() < kDigits) return Seal::kBroken;
  const absl::string_view digits = text.substr(0, kDigits);
  text.remove_prefix(kDigits);
  if (!absl::ConsumePrefix(&text, kAfter)) return Seal::kBroken;
  return Sha256Of(text) == digits ? Seal::kWhole : Seal::kBroken;
}

}  // namespace roundhouse
