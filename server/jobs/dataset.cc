#include "server/jobs/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int64_t kManifestVersion = 1;

// SplitMix64 (Steele, Lea, Flood 2014): one well-mixed value per counter.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

absl::StatusOr<nlohmann::json> ReadManifest(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::InvalidArgumentError(path + ": cannot be read");
  auto json = nlohmann::json::parse(text.str(), nullptr, false);
  if (!json.is_object() || !json.contains("format_version") ||
      json["format_version"] != kManifestVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no manifest of version ", kManifestVersion));
  }
  return json;
}

absl::StatusOr<int64_t> Count(const nlohmann::json& manifest, const char* key,
                              const std::string& path) {
  const auto found = manifest.find(key);
  if (found == manifest.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > uint64_t{1} << 48) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", key, " is not a count"));
  }
  return found->get<int64_t>();
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
  if (const auto dropped = manifest.find("dropped");
      dropped != manifest.end() && dropped->is_object()) {
    for (const auto& [reason, count] : dropped->items()) {
      if (count.is_number_unsigned()) counts.dropped += count.get<int64_t>();
    }
  }
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

Dataset::~Dataset() {
  for (const Mapping& mapping : mappings_) {
    munmap(const_cast<void*>(mapping.data), mapping.bytes);
  }
}

absl::Status Dataset::Map(const std::string& path, uint64_t expected_bytes,
                          Mapping& mapping) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  struct stat info;
  const bool sized = fstat(fd, &info) == 0 &&
                     static_cast<uint64_t>(info.st_size) == expected_bytes;
  void* data =
      sized ? mmap(nullptr, expected_bytes, PROT_READ, MAP_PRIVATE, fd, 0)
            : MAP_FAILED;
  close(fd);
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
  ASSIGN_OR_RETURN(const nlohmann::json manifest, ReadManifest(manifest_path));
  auto dataset = std::unique_ptr<Dataset>(new Dataset());
  ASSIGN_OR_RETURN(dataset->counts_, ParseCounts(manifest, manifest_path));
  const Counts& counts = dataset->counts_;
  if (counts.sequences == 0 || counts.tokens == 0) {
    return absl::InvalidArgumentError(path + ": the dataset is empty");
  }
  Mapping tokens, labels, offsets;
  RETURN_IF_ERROR(dataset->Map(path + "/tokens.u32",
                               counts.tokens * sizeof(uint32_t), tokens));
  RETURN_IF_ERROR(dataset->Map(path + "/labels.u8", counts.tokens, labels));
  RETURN_IF_ERROR(dataset->Map(path + "/offsets.u64",
                               (counts.sequences + 1) * sizeof(uint64_t),
                               offsets));
  dataset->tokens_ = static_cast<const uint32_t*>(tokens.data);
  dataset->labels_ = static_cast<const uint8_t*>(labels.data);
  dataset->offsets_ = static_cast<const uint64_t*>(offsets.data);
  RETURN_IF_ERROR(dataset->CheckContent(path, vocab_size));
  return dataset;
}

absl::Status Dataset::CheckContent(const std::string& path,
                                   int64_t vocab_size) const {
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
  for (uint64_t i = 0; i < tokens; ++i) {
    if (tokens_[i] >= static_cast<uint64_t>(vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tokenizer gives token ", tokens_[i],
          ", the model's vocab_size is ", vocab_size, " (config.json)"));
    }
  }
  return absl::OkStatus();
}

int64_t Dataset::TargetTokens(int64_t sequence) const {
  return std::count_if(labels_ + offsets_[sequence] + 1,
                       labels_ + offsets_[sequence + 1],
                       [](uint8_t label) { return label != 0; });
}

void Dataset::FillRow(int64_t sequence, int64_t row_tokens, int32_t* tokens,
                      int32_t* labels) const {
  const int64_t length = SequenceTokens(sequence);
  ROUNDHOUSE_CHECK(length <= row_tokens);
  const uint32_t* ids = tokens_ + offsets_[sequence];
  const uint8_t* targets = labels_ + offsets_[sequence];
  for (int64_t i = 0; i < row_tokens; ++i) {
    tokens[i] = i < length ? static_cast<int32_t>(ids[i]) : -1;
    const bool target = i + 1 < length && targets[i + 1] != 0;
    labels[i] = target ? static_cast<int32_t>(ids[i + 1]) : kIgnoreLabel;
  }
}

BatchOrder::BatchOrder(int64_t sequences, int64_t batch_size, uint64_t seed)
    : sequences_(sequences),
      batch_size_(batch_size),
      seed_(seed),
      steps_per_epoch_((sequences + batch_size - 1) / batch_size) {
  ROUNDHOUSE_CHECK(sequences >= 1 && batch_size >= 1);
}

std::vector<int64_t> BatchOrder::Batch(int64_t step) {
  const int64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) {
    permutation_.resize(sequences_);
    std::iota(permutation_.begin(), permutation_.end(), 0u);
    const uint64_t key = Mix(Mix(seed_) ^ static_cast<uint64_t>(epoch));
    // Fisher-Yates; the modulo's bias is below sequences / 2^64.
    for (int64_t i = sequences_ - 1; i > 0; --i) {
      const uint64_t other =
          Mix(key ^ static_cast<uint64_t>(i)) % static_cast<uint64_t>(i + 1);
      std::swap(permutation_[i], permutation_[other]);
    }
    epoch_ = epoch;
  }
  const int64_t first = step % steps_per_epoch_ * batch_size_;
  const int64_t last = std::min(first + batch_size_, sequences_);
  return {permutation_.begin() + first, permutation_.begin() + last};
}

std::vector<MicroBatch> CutMicroBatches(const Dataset& dataset,
                                        const std::vector<int64_t>& sequences,
                                        int64_t micro_batch_size) {
  std::vector<MicroBatch> micro_batches;
  for (size_t i = 0; i < sequences.size(); i += micro_batch_size) {
    const size_t end = std::min<size_t>(i + micro_batch_size, sequences.size());
    MicroBatch& micro_batch = micro_batches.emplace_back();
    micro_batch.sequences.assign(sequences.begin() + i,
                                 sequences.begin() + end);
    for (int64_t sequence : micro_batch.sequences) {
      micro_batch.row_tokens =
          std::max(micro_batch.row_tokens, dataset.SequenceTokens(sequence));
    }
  }
  return micro_batches;
}

}  // namespace roundhouse
