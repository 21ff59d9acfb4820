#include "server/dataset/prepared_split.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_site.h"
#include "base/files/sealed_json.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int kSealedVersion = 2;
constexpr int kVersionWithoutSeal = 1;
constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

absl::Status Damaged(const std::string& path, const std::string& why) {
  return absl::DataLossError(absl::StrCat(path, ": ", why));
}

// What keeps a file from being read; a disk that fails (INTERNAL) says nothing
// of the file.
absl::Status Unreadable(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsCancelled(status) ||
      absl::IsInternal(status)) {
    return status;
  }
  return absl::DataLossError(std::string(status.message()));
}

absl::Status VerifyFile(const std::string& path, const nlohmann::json& record,
                        const std::atomic<bool>* stop) {
  const auto bytes = record.find("bytes");
  const auto sha256 = record.find("sha256");
  if (bytes == record.end() || !bytes->is_number_unsigned() ||
      sha256 == record.end() || !sha256->is_string()) {
    return Damaged(path, "the manifest has no bytes or SHA-256 of it");
  }
  const auto found = HashFile(kPreparedVerify, path, stop);
  if (!found.ok()) return Unreadable(found.status());
  if (found->bytes != bytes->get<uint64_t>()) {
    return Damaged(path, absl::StrCat(found->bytes, " bytes, ", bytes->dump(),
                                      " expected"));
  }
  if (found->sha256 != sha256->get<std::string>()) {
    return Damaged(path, "its SHA-256 is not the one it was written with");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> ReadPreparedManifest(const std::string& path) {
  const std::string name = path + "/manifest.json";
  const auto text = ReadWholeFile(kPreparedVerify, name, kMaxManifestBytes);
  if (absl::IsUnavailable(text.status())) return text.status();
  if (absl::IsDataLoss(text.status()) || absl::IsInternal(text.status())) {
    return absl::DataLossError(std::string(text.status().message()));
  }
  if (!text.ok()) {
    return absl::InvalidArgumentError(std::string(text.status().message()));
  }
  const Seal seal = CheckSeal(*text);
  if (seal == Seal::kBroken) {
    return absl::InvalidArgumentError(
        name + ": its SHA-256 is not the one it was written with");
  }
  auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto version =
      json.is_object() ? json.find("format_version") : json.end();
  const int expected =
      seal == Seal::kWhole ? kSealedVersion : kVersionWithoutSeal;
  if (version == json.end() || *version != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": no manifest of version ", kVersionWithoutSeal,
                     ", or sealed ", "and of version ", kSealedVersion));
  }
  return json;
}

absl::Status VerifyPreparedSplit(const std::string& path,
                                 const std::atomic<bool>* stop) {
  const auto manifest = ReadPreparedManifest(path);
  if (absl::IsDataLoss(manifest.status())) {
    return absl::InternalError(std::string(manifest.status().message()));
  }
  if (!manifest.ok()) return Unreadable(manifest.status());
  const auto files = manifest->find("files");
  if (files == manifest->end() || !files->is_object()) {
    return Damaged(path + "/manifest.json", "says nothing of files");
  }
  for (const char* name :
       {"tokens.u32", "labels.u8", "offsets.u64", "lines.u32", "rows.u64"}) {
    if (std::string(name) == "rows.u64" && !manifest->contains("packed_rows")) {
      continue;
    }
    const auto record = files->find(name);
    if (record == files->end() || !record->is_object()) {
      return Damaged(path + "/manifest.json",
                     absl::StrCat("says nothing of ", name));
    }
    RETURN_IF_ERROR(VerifyFile(absl::StrCat(path, "/", name), *record, stop));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
