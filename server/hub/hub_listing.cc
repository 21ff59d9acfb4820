#include "server/hub/hub_listing.h"

#include <openssl/evp.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files/durable_file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/model/directory.h"
#include "base/model/json.h"
#include "base/model/safetensors_index.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "server/hub/hub_refusal.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {
namespace {

constexpr char kSource[] = "the hub's answer";
constexpr JsonLimits kLimits = {.max_bytes = kMaxListingBytes,
                                .max_depth = kMaxJsonDepth,
                                .max_keys = kMaxJsonKeys};
// Values of a text, at most: each takes about a hundred bytes once it is
// parsed.
constexpr int64_t kMaxListingValues = 1'000'000;
constexpr int64_t kMaxIndexValues = kMaxIndexKeys + 1000;
constexpr size_t kSha1Digits = 40;
constexpr size_t kSha256Digits = 64;

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kAdapterConfig[] = "adapter_config.json";
constexpr char kAdapterWeights[] = "adapter_model.safetensors";
// What begins so stands beside a model for people.
constexpr const char* kForPeople[] = {"license", "licence", "notice", "readme",
                                      "use_policy"};

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Refuses more values before they are parsed.  Each follows one of these
// characters, of which a text may have more in its strings.
absl::Status CheckValues(const std::string& json, const char* source,
                         int64_t most) {
  const auto values = std::count_if(json.begin(), json.end(), [](char c) {
    return c == ',' || c == '[' || c == '{';
  });
  if (values <= most) return absl::OkStatus();
  return Refused(absl::StrCat(source, ": ", values, " values, at most ", most,
                              " are read"));
}

// The hash, or "" where there is none.
absl::StatusOr<std::string> HashIn(const JsonFields& fields, const char* field,
                                   size_t digits) {
  ASSIGN_OR_RETURN(std::string hash, fields.StringOr(field, ""));
  if (hash.empty() || IsHex(hash, digits)) return hash;
  return fields.Invalid(field,
                        absl::StrCat("expected ", digits, " digits of 0-9, a-f",
                                     ", found ", QuoteForError(hash)));
}

absl::StatusOr<HubFile> FileIn(const OrderedJson& json) {
  if (!json.is_object()) {
    return Refused(absl::StrCat(kSource, ": siblings: expected objects"));
  }
  const JsonFields fields(json, kSource, "siblings.");
  HubFile file;
  ASSIGN_OR_RETURN(file.name, fields.StringOr("rfilename", ""));
  constexpr auto kMost = static_cast<int64_t>(kMaxUploadedFileBytes);
  ASSIGN_OR_RETURN(int64_t bytes, fields.CountOr("size", kMost, -1));
  ASSIGN_OR_RETURN(file.git_sha1, HashIn(fields, "blobId", kSha1Digits));
  const OrderedJson* const lfs = fields.Find("lfs");
  if (lfs != nullptr) {
    if (!lfs->is_object()) return fields.WrongType("lfs", "an object", *lfs);
    const JsonFields large(*lfs, kSource, "siblings.lfs.");
    ASSIGN_OR_RETURN(bytes, large.CountOr("size", kMost, bytes));
    ASSIGN_OR_RETURN(file.sha256, HashIn(large, "sha256", kSha256Digits));
    // Its blob is a pointer.
    file.git_sha1.clear();
  }
  // Without a size it is as good as without a hash.
  if (bytes < 0) file.sha256 = file.git_sha1 = "";
  file.bytes = static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
  return file;
}

absl::StatusOr<HubListing> ListingIn(const OrderedJson& root) {
  const JsonFields fields(root, kSource, "");
  HubListing listing;
  ASSIGN_OR_RETURN(listing.commit, HashIn(fields, "sha", kSha1Digits));
  if (listing.commit.empty()) return fields.Invalid("sha", "is missing");
  const OrderedJson* const siblings = fields.Find("siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return fields.Invalid("siblings", "expected a list of files");
  }
  if (siblings->size() > kMaxHubFiles) {
    return fields.Invalid("siblings",
                          absl::StrCat(siblings->size(), " files, at most ",
                                       kMaxHubFiles, " are read"));
  }
  for (const OrderedJson& sibling : *siblings) {
    ASSIGN_OR_RETURN(HubFile file, FileIn(sibling));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

const HubFile* Find(const HubListing& listing, absl::string_view name) {
  const auto found =
      std::find_if(listing.files.begin(), listing.files.end(),
                   [name](const HubFile& file) { return file.name == name; });
  return found == listing.files.end() ? nullptr : &*found;
}

bool IsForPeople(const std::string& name) {
  const std::string small = absl::AsciiStrToLower(name);
  return !absl::StrContains(name, '/') &&
         std::any_of(
             std::begin(kForPeople), std::end(kForPeople),
             [&](const char* word) { return absl::StartsWith(small, word); });
}

// What may be in any model's directory, beside its weights.
bool IsCompanion(const std::string& name) {
  return name == kConfig || name == kAdapterConfig || name == kAdapterWeights ||
         IsTokenizerFile(name) || IsForPeople(name);
}

// The files with weights: the one, or the index and what it names.
absl::StatusOr<std::set<std::string>> WeightFiles(const HubListing& listing,
                                                  const std::string& index) {
  std::set<std::string> names;
  if (Find(listing, kWeights) != nullptr) names.insert(kWeights);
  if (ShardIndex(listing) == nullptr) return names;
  RETURN_IF_ERROR(CheckValues(index, kIndex, kMaxIndexValues));
  const auto shards = ParseSafetensorsIndex(index, kIndex);
  if (!shards.ok()) return Refused(shards.status().message());
  names.insert(kIndex);
  for (const auto& [tensor, file] : *shards) {
    if (names.insert(file).second && Find(listing, file) == nullptr) {
      return Refused(absl::StrCat(kIndex, " names ", QuoteForError(file),
                                  ", which the hub does not have"));
    }
  }
  return names;
}

absl::Status CheckUsable(const HubListing& listing, bool has_weights) {
  const bool model = Find(listing, kConfig) != nullptr && has_weights;
  const bool adapter = Find(listing, kAdapterConfig) != nullptr &&
                       Find(listing, kAdapterWeights) != nullptr;
  if (model || adapter) return absl::OkStatus();
  return Refused(absl::StrCat(
      "the hub has no model here that could be used: neither ", kConfig,
      " with ", kWeights, " (or ", kIndex, ") nor ", kAdapterConfig, " with ",
      kAdapterWeights, "; weights in other forms are not read"));
}

// Memory is only for what is small.
absl::Status CheckSizes(const HubChoice& choice) {
  uint64_t whole = 0;
  for (const HubFile& file : choice.files) {
    if (file.sha256.empty() && file.git_sha1.empty()) {
      return Refused(absl::StrCat(kSource, " has no size or no hash of ",
                                  QuoteForError(file.name)));
    }
    if (file.sha256.empty() || file.name == kIndex) whole += file.bytes;
    if (whole > kMaxWholeBytes) {
      return Refused(absl::StrCat(QuoteForError(file.name),
                                  ": the hub has no SHA-256 of it, and files "
                                  "without one have ",
                                  kMaxWholeBytes, " bytes together at most"));
    }
  }
  return absl::OkStatus();
}

std::string GitSha1(const std::string& data) {
  const std::string head = absl::StrCat("blob ", data.size());
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  const bool done =
      context != nullptr &&
      EVP_DigestInit_ex(context, EVP_sha1(), nullptr) == 1 &&
      EVP_DigestUpdate(context, head.c_str(), head.size() + 1) == 1 &&
      EVP_DigestUpdate(context, data.data(), data.size()) == 1 &&
      EVP_DigestFinal_ex(context, digest, &bytes) == 1;
  EVP_MD_CTX_free(context);
  ROUNDHOUSE_CHECK(done) << "SHA-1";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), bytes));
}

}  // namespace

uint64_t HubChoice::bytes() const {
  uint64_t bytes = 0;
  for (const HubFile& file : files) bytes += file.bytes;
  return bytes;
}

absl::StatusOr<HubListing> ParseListing(const std::string& json) {
  RETURN_IF_ERROR(CheckValues(json, kSource, kMaxListingValues));
  const absl::Status sound = CheckJson(json, kSource, kLimits);
  if (!sound.ok()) return Refused(sound.message());
  const OrderedJson root = OrderedJson::parse(json, nullptr, false);
  if (!root.is_object()) {
    return Refused(absl::StrCat(kSource, " is no JSON object"));
  }
  absl::StatusOr<HubListing> listing = ListingIn(root);
  if (listing.ok()) return listing;
  return Refused(listing.status().message());
}

const HubFile* ShardIndex(const HubListing& listing) {
  // transformers takes the single file where both are there.
  return Find(listing, kWeights) != nullptr ? nullptr : Find(listing, kIndex);
}

absl::StatusOr<HubChoice> ChooseFiles(const HubListing& listing,
                                      const std::string& index) {
  ASSIGN_OR_RETURN(const std::set<std::string> weights,
                   WeightFiles(listing, index));
  RETURN_IF_ERROR(CheckUsable(listing, !weights.empty()));
  HubChoice choice;
  for (const HubFile& file : listing.files) {
    const bool wanted = weights.contains(file.name) || IsCompanion(file.name);
    if (wanted && CheckRelativeName(file.name).ok()) {
      choice.files.push_back(file);
    } else {
      choice.left_out.push_back(file.name.substr(0, kMaxRelativeNameBytes));
    }
  }
  std::sort(choice.files.begin(), choice.files.end(),
            [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  RETURN_IF_ERROR(CheckSizes(choice));
  return choice;
}

uint64_t MaxWholeBytes(const HubFile& file) {
  return file.name == kIndex ? kMaxHubIndexBytes : kMaxWholeBytes;
}

absl::Status CheckWhole(const HubFile& file, const std::string& data) {
  if (data.size() != file.bytes) {
    return Refused(absl::StrCat(QuoteForError(file.name), ": the hub sent ",
                                data.size(), " bytes, and lists ", file.bytes));
  }
  const bool large = !file.sha256.empty();
  const std::string hash = large ? Sha256Of(data) : GitSha1(data);
  if (hash == (large ? file.sha256 : file.git_sha1)) return absl::OkStatus();
  return Refused(absl::StrCat(
      QuoteForError(file.name), ": what the hub sent has the ",
      large ? "SHA-256 " : "git hash ", hash, ", not the one that it lists"));
}

}  // namespace roundhouse
