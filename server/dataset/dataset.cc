#include "server/dataset/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files/descriptor.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/dataset/prepared_split.h"

namespace roundhouse {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 48;
constexpr size_t kMaxWarnings = 16;
constexpr size_t kMaxNamedLines = 16;  // of a warning
constexpr size_t kMaxTurnEnds = 64;

// SplitMix64 (Steele, Lea, Flood 2014): one well-mixed value per counter.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

absl::StatusOr<int64_t> Count(const nlohmann::json& manifest, const char* key,
                              const std::string& path) {
  const auto found = manifest.find(key);
  if (found == manifest.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > static_cast<uint64_t>(kMaxCount)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", key, " is not a count"));
  }
  return found->get<int64_t>();
}

// The sum over all reasons; what is no count adds nothing.
int64_t Dropped(const nlohmann::json& manifest) {
  int64_t sum = 0;
  const auto dropped = manifest.find("dropped");
  if (dropped == manifest.end() || !dropped->is_object()) return sum;
  for (const auto& [reason, count] : dropped->items()) {
    const auto known = Count(*dropped, reason.c_str(), "");
    if (known.ok() && sum <= kMaxCount) sum += *known;
  }
  return sum;
}

bool AreLines(const nlohmann::json& lines) {
  return lines.is_array() && !lines.empty() && lines.size() <= kMaxNamedLines &&
         std::all_of(lines.begin(), lines.end(), [](const auto& line) {
           return line.is_number_unsigned();
         });
}

bool ArePlaces(const nlohmann::json& places) {
  return places.is_array() && !places.empty() &&
         places.size() <= kMaxNamedLines &&
         std::all_of(places.begin(), places.end(),
                     [](const auto& place) { return place.is_string(); });
}

// "TEXT (lines 2, 7)", "TEXT (b.jsonl:2)"; there are more lines where there are
// more rows.
absl::StatusOr<std::string> ParseWarning(const nlohmann::json& warning,
                                         const std::string& path) {
  const auto text = warning.find("warning");
  const auto lines = warning.find("lines");
  if (text == warning.end() || !text->is_string() || lines == warning.end() ||
      !AreLines(*lines)) {
    return absl::InvalidArgumentError(path + ": malformed warnings");
  }
  std::vector<std::string> named;
  for (const nlohmann::json& line : *lines) named.push_back(line.dump());
  const auto places = warning.find("places");
  if (places != warning.end()) {  // of several files
    if (!ArePlaces(*places)) {
      return absl::InvalidArgumentError(path + ": malformed warnings");
    }
    named = places->get<std::vector<std::string>>();
  }
  ASSIGN_OR_RETURN(const int64_t rows, Count(warning, "rows", path));
  const char* what = places != warning.end()          ? " ("
                     : named.size() == 1 && rows <= 1 ? " (line "
                                                      : " (lines ";
  if (rows > static_cast<int64_t>(named.size())) named.push_back("...");
  return absl::StrCat(text->get<std::string>(), what,
                      absl::StrJoin(named, ", "), ")");
}

absl::StatusOr<std::vector<std::string>> ParseWarnings(
    const nlohmann::json& manifest, const std::string& path) {
  std::vector<std::string> warnings;
  const auto found = manifest.find("warnings");
  if (found == manifest.end()) return warnings;
  if (!found->is_array() || found->size() > kMaxWarnings) {
    return absl::InvalidArgumentError(path + ": malformed warnings");
  }
  for (const nlohmann::json& warning : *found) {
    ASSIGN_OR_RETURN(std::string text, ParseWarning(warning, path));
    warnings.push_back(std::move(text));
  }
  return warnings;
}

// None in a manifest of before there were any.
absl::StatusOr<std::vector<int64_t>> ParseTurnEnds(
    const nlohmann::json& manifest, const std::string& path) {
  std::vector<int64_t> ids;
  const auto found = manifest.find("turn_end_ids");
  if (found == manifest.end()) return ids;
  const bool sound =
      found->is_array() && found->size() <= kMaxTurnEnds &&
      std::all_of(found->begin(), found->end(), [](const nlohmann::json& id) {
        return id.is_number_unsigned() && id.get<uint64_t>() <= kMaxCount;
      });
  if (!sound) {
    return absl::InvalidArgumentError(path + ": malformed turn_end_ids");
  }
  for (const nlohmann::json& id : *found) ids.push_back(id.get<int64_t>());
  return ids;
}

absl::StatusOr<Dataset::Counts> ParseCounts(const nlohmann::json& manifest,
                                            const std::string& path) {
  Dataset::Counts counts;
  ASSIGN_OR_RETURN(counts.sequences, Count(manifest, "sequences", path));
  ASSIGN_OR_RETURN(counts.tokens, Count(manifest, "tokens", path));
  ASSIGN_OR_RETURN(counts.target_tokens,
                   Count(manifest, "target_tokens", path));
  ASSIGN_OR_RETURN(counts.truncated, Count(manifest, "truncated", path));
  ASSIGN_OR_RETURN(counts.max_sequence_tokens,
                   Count(manifest, "max_sequence_tokens", path));
  counts.rows = counts.sequences;
  counts.max_row_tokens = counts.max_sequence_tokens;
  if (manifest.contains("packed_rows")) {
    counts.packed = true;
    ASSIGN_OR_RETURN(counts.rows, Count(manifest, "packed_rows", path));
    ASSIGN_OR_RETURN(counts.max_row_tokens,
                     Count(manifest, "max_row_tokens", path));
  }
  counts.dropped = Dropped(manifest);
  ASSIGN_OR_RETURN(counts.warnings, ParseWarnings(manifest, path));
  counts.chat_template = manifest.contains("template");
  ASSIGN_OR_RETURN(counts.turn_end_ids, ParseTurnEnds(manifest, path));
  const auto bigram = manifest.find("bigram_loss");
  if (bigram != manifest.end() && bigram->is_number()) {
    counts.bigram_loss = bigram->get<double>();
  }
  if (const auto files = manifest.find("files");
      files != manifest.end() && files->is_object()) {
    const auto tokens = files->value("tokens.u32", nlohmann::json::object());
    if (tokens.is_object() && tokens.contains("sha256") &&
        tokens["sha256"].is_string()) {
      counts.tokens_sha256 = tokens["sha256"].get<std::string>();
    }
  }
  return counts;
}

}  // namespace

absl::StatusOr<bool> UsesChatTemplate(const std::string& path) {
  ASSIGN_OR_RETURN(const nlohmann::json manifest, ReadPreparedManifest(path));
  return manifest.contains("template");
}

Dataset::~Dataset() {
  for (const Mapping& mapping : mappings_) {
    munmap(const_cast<void*>(mapping.data), mapping.bytes);
  }
}

absl::Status Dataset::Map(const std::string& path, uint64_t expected_bytes,
                          Mapping& mapping) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  struct stat info;
  const bool sized = fstat(file.get(), &info) == 0 &&
                     static_cast<uint64_t>(info.st_size) == expected_bytes;
  void* data = sized ? mmap(nullptr, expected_bytes, PROT_READ, MAP_PRIVATE,
                            file.get(), 0)
                     : MAP_FAILED;
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not the ", expected_bytes,
                     " bytes that its manifest promises"));
  }
  mapping = {data, expected_bytes};
  mappings_.push_back(mapping);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const std::string& path,
                                                       int64_t vocab_size) {
  const std::string manifest_path = path + "/manifest.json";
  ASSIGN_OR_RETURN(const nlohmann::json manifest, ReadPreparedManifest(path));
  auto dataset = std::unique_ptr<Dataset>(new Dataset());
  dataset->path_ = path;
  ASSIGN_OR_RETURN(dataset->counts_, ParseCounts(manifest, manifest_path));
  const Counts& counts = dataset->counts_;
  if (counts.rows == 0 || counts.sequences == 0 || counts.tokens == 0) {
    return absl::InvalidArgumentError(path + ": the dataset is empty");
  }
  RETURN_IF_ERROR(dataset->MapFiles(path));
  RETURN_IF_ERROR(dataset->CheckOffsets(path));
  if (dataset->rows_ != nullptr) RETURN_IF_ERROR(dataset->CheckRows(path));
  RETURN_IF_ERROR(dataset->CheckTokens(vocab_size));
  return dataset;
}

absl::Status Dataset::MapFiles(const std::string& path) {
  Mapping tokens, labels, offsets, rows;
  RETURN_IF_ERROR(
      Map(path + "/tokens.u32", counts_.tokens * sizeof(uint32_t), tokens));
  RETURN_IF_ERROR(Map(path + "/labels.u8", counts_.tokens, labels));
  RETURN_IF_ERROR(Map(path + "/offsets.u64",
                      (counts_.sequences + 1) * sizeof(uint64_t), offsets));
  tokens_ = static_cast<const uint32_t*>(tokens.data);
  labels_ = static_cast<const uint8_t*>(labels.data);
  offsets_ = static_cast<const uint64_t*>(offsets.data);
  if (!counts_.packed) return absl::OkStatus();
  RETURN_IF_ERROR(
      Map(path + "/rows.u64", (counts_.rows + 1) * sizeof(uint64_t), rows));
  rows_ = static_cast<const uint64_t*>(rows.data);
  return absl::OkStatus();
}

absl::Status Dataset::CheckOffsets(const std::string& path) const {
  const auto tokens = static_cast<uint64_t>(counts_.tokens);
  for (int64_t i = 0; i < counts_.sequences; ++i) {
    const bool grows = offsets_[i] < offsets_[i + 1];
    if (!grows || offsets_[i + 1] > tokens ||
        SequenceTokens(i) > counts_.max_sequence_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, "/offsets.u64: sequence ", i, " is malformed"));
    }
  }
  if (offsets_[0] != 0 || offsets_[counts_.sequences] != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, "/offsets.u64: does not cover the tokens"));
  }
  return absl::OkStatus();
}

absl::Status Dataset::CheckRows(const std::string& path) const {
  const auto sequences = static_cast<uint64_t>(counts_.sequences);
  for (int64_t i = 0; i < counts_.rows; ++i) {
    const bool grows = rows_[i] < rows_[i + 1];
    if (!grows || rows_[i + 1] > sequences ||
        RowTokens(i) > counts_.max_row_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, "/rows.u64: row ", i, " is malformed"));
    }
  }
  if (rows_[0] != 0 || rows_[counts_.rows] != sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, "/rows.u64: does not cover the sequences"));
  }
  return absl::OkStatus();
}

absl::Status Dataset::CheckTokens(int64_t vocab_size) const {
  for (int64_t i = 0; i < counts_.tokens; ++i) {
    if (tokens_[i] >= static_cast<uint64_t>(vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tokenizer gives token ", tokens_[i],
          ", the model's vocab_size is ", vocab_size, " (config.json)"));
    }
  }
  return absl::OkStatus();
}

std::vector<int64_t> Dataset::LinesOf(const std::vector<int64_t>& rows) const {
  std::ifstream file(path_ + "/lines.u32", std::ios::binary);
  std::vector<int64_t> lines;
  for (const int64_t row : rows) {
    uint32_t line = 0;
    file.seekg(RowSequences(row).first * static_cast<int64_t>(sizeof(line)));
    file.read(reinterpret_cast<char*>(&line), sizeof(line));
    if (!file) return {};
    lines.push_back(line);
  }
  return lines;
}

int64_t Dataset::TargetTokens(int64_t row) const {
  const SequenceRange range = RowSequences(row);
  int64_t targets = 0;
  for (int64_t i = range.first; i < range.end; ++i) {
    targets +=
        std::count_if(labels_ + offsets_[i] + 1, labels_ + offsets_[i + 1],
                      [](uint8_t label) { return label != 0; });
  }
  return targets;
}

void Dataset::FillRow(int64_t row, int64_t row_tokens, int32_t* tokens,
                      int32_t* labels, int32_t* positions) const {
  const SequenceRange range = RowSequences(row);
  ROUNDHOUSE_CHECK(RowTokens(row) <= row_tokens);
  int64_t at = 0;
  for (int64_t sequence = range.first; sequence < range.end; ++sequence) {
    const int64_t length = SequenceTokens(sequence);
    const uint32_t* ids = tokens_ + offsets_[sequence];
    const uint8_t* targets = labels_ + offsets_[sequence];
    for (int64_t i = 0; i < length; ++i, ++at) {
      tokens[at] = static_cast<int32_t>(ids[i]);
      const bool target = i + 1 < length && targets[i + 1] != 0;
      labels[at] = target ? static_cast<int32_t>(ids[i + 1]) : kIgnoreLabel;
      if (positions != nullptr) positions[at] = static_cast<int32_t>(i);
    }
  }
  std::fill(tokens + at, tokens + row_tokens, -1);
  std::fill(labels + at, labels + row_tokens, kIgnoreLabel);
  if (positions != nullptr) {
    std::iota(positions + at, positions + row_tokens, 0);
  }
}

BatchOrder::BatchOrder(int64_t rows, int64_t batch_size, uint64_t seed)
    : rows_(rows),
      batch_size_(batch_size),
      seed_(seed),
      steps_per_epoch_((rows + batch_size - 1) / batch_size) {
  ROUNDHOUSE_CHECK(rows >= 1 && batch_size >= 1);
}

std::vector<int64_t> BatchOrder::Batch(int64_t step) {
  const int64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) {
    permutation_.resize(rows_);
    std::iota(permutation_.begin(), permutation_.end(), 0u);
    const uint64_t key = Mix(Mix(seed_) ^ static_cast<uint64_t>(epoch));
    // Fisher-Yates; the modulo's bias is below rows / 2^64.
    for (int64_t i = rows_ - 1; i > 0; --i) {
      const uint64_t other =
          Mix(key ^ static_cast<uint64_t>(i)) % static_cast<uint64_t>(i + 1);
      std::swap(permutation_[i], permutation_[other]);
    }
    epoch_ = epoch;
  }
  const int64_t first = step % steps_per_epoch_ * batch_size_;
  const int64_t last = std::min(first + batch_size_, rows_);
  return {permutation_.begin() + first, permutation_.begin() + last};
}

std::vector<MicroBatch> CutMicroBatches(const Dataset& dataset,
                                        const std::vector<int64_t>& rows,
                                        int64_t micro_batch_size) {
  std::vector<MicroBatch> micro_batches;
  for (size_t i = 0; i < rows.size(); i += micro_batch_size) {
    const size_t end = std::min<size_t>(i + micro_batch_size, rows.size());
    MicroBatch& micro_batch = micro_batches.emplace_back();
    micro_batch.rows.assign(rows.begin() + i, rows.begin() + end);
    for (int64_t row : micro_batch.rows) {
      micro_batch.row_tokens =
          std::max(micro_batch.row_tokens, dataset.RowTokens(row));
    }
  }
  return micro_batches;
}

}  // namespace roundhouse
