// Prepared rows on disk (server/prepare/prepare.py writes them), mapped
// read-only, and the order in which a job takes them.
//
// A row is what a batch counts: with packing some whole sequences one after
// the other, otherwise one sequence.  Files of a prepared split: tokens.u32,
// labels.u8, offsets.u64, lines.u32, with packing rows.u64, manifest.json.
// Opening checks sizes and values against the manifest, so that nothing read
// later can lie outside.  Thread-compatible; immutable.
#ifndef ROUNDHOUSE_SERVER_DATASET_DATASET_H_
#define ROUNDHOUSE_SERVER_DATASET_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse {

// No target at this position.
inline constexpr int32_t kIgnoreLabel = -100;

class Dataset {
 public:
  // INVALID_ARGUMENT naming the file and what is wrong; `vocab_size` bounds
  // every token.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path,
                                                       int64_t vocab_size);
  ~Dataset();
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  struct Counts {
    bool packed = false;
    int64_t rows = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;
    int64_t target_tokens = 0;
    int64_t truncated = 0;
    int64_t dropped = 0;
    int64_t max_sequence_tokens = 0;
    int64_t max_row_tokens = 0;
    std::optional<double> bigram_loss;  // nats per target token
    bool chat_template = false;         // the model's template wrote the rows
    std::string tokens_sha256;
    // Tokens that the template ends turns with, beyond those that the model's
    // files name as ends.
    std::vector<int64_t> turn_end_ids;
    std::vector<std::string> warnings;  // each with the first lines it is of
  };
  const Counts& counts() const { return counts_; }

  // The sequences of a row: those from `first` to before `end`, at least one.
  struct SequenceRange {
    int64_t first = 0;
    int64_t end = 0;
  };
  SequenceRange RowSequences(int64_t row) const {
    if (rows_ == nullptr) return {row, row + 1};
    return {static_cast<int64_t>(rows_[row]),
            static_cast<int64_t>(rows_[row + 1])};
  }
  int64_t SequenceTokens(int64_t sequence) const {
    return static_cast<int64_t>(offsets_[sequence + 1] - offsets_[sequence]);
  }
  int64_t RowTokens(int64_t row) const {
    const SequenceRange range = RowSequences(row);
    return static_cast<int64_t>(offsets_[range.end] - offsets_[range.first]);
  }
  // Where these rows begin in the data, as lines.u32 has it; empty where that
  // file can't be read.  Blocks on the disk.
  std::vector<int64_t> LinesOf(const std::vector<int64_t>& rows) const;
  // Targets of one row; a label at the first position of a sequence is never
  // one.
  int64_t TargetTokens(int64_t row) const;

  // One padded row of `row_tokens` values each: `tokens` gets the ids, then -1;
  // `labels` at position i the id predicted there, i.e. that of position i + 1
  // where it is a target of the same sequence, else kIgnoreLabel; `positions`,
  // unless null, counts from 0 in every sequence and again in the padding: 0
  // begins what attends to nothing before it.
  // REQUIRES: row_tokens >= RowTokens(row).
  void FillRow(int64_t row, int64_t row_tokens, int32_t* tokens,
               int32_t* labels, int32_t* positions = nullptr) const;

 private:
  Dataset() = default;

  struct Mapping {
    const void* data = nullptr;
    size_t bytes = 0;
  };
  absl::Status Map(const std::string& path, uint64_t expected_bytes,
                   Mapping& mapping);
  absl::Status MapFiles(const std::string& path);
  absl::Status CheckOffsets(const std::string& path) const;
  absl::Status CheckRows(const std::string& path) const;
  absl::Status CheckTokens(int64_t vocab_size) const;

  std::string path_;
  Counts counts_;
  std::vector<Mapping> mappings_;
  const uint32_t* tokens_ = nullptr;
  const uint8_t* labels_ = nullptr;
  const uint64_t* offsets_ = nullptr;
  const uint64_t* rows_ = nullptr;  // null: every row has one sequence
};

// Counts::chat_template of the split at `path`; reads its manifest only.
// INVALID_ARGUMENT as Dataset::Open.
absl::StatusOr<bool> UsesChatTemplate(const std::string& path);

// Which rows each optimizer step takes: every epoch is a permutation of
// all of them drawn from (seed, epoch), cut into batches; the last, short batch
// of an epoch is kept.  A pure function of its options, so that a resumed job
// needs nothing but the step.
class BatchOrder {
 public:
  BatchOrder(int64_t rows, int64_t batch_size, uint64_t seed);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // The rows of optimizer step `step`, from 0.
  std::vector<int64_t> Batch(int64_t step);

 private:
  const int64_t rows_;
  const int64_t batch_size_;
  const uint64_t seed_;
  const int64_t steps_per_epoch_;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<uint32_t> permutation_;
};

// Some rows of a dataset, and the length they are padded to.
struct MicroBatch {
  std::vector<int64_t> rows;
  int64_t row_tokens = 0;
};

// Cuts rows, in order, into micro-batches of `micro_batch_size`; the last may
// be smaller.
std::vector<MicroBatch> CutMicroBatches(const Dataset& dataset,
                                        const std::vector<int64_t>& rows,
                                        int64_t micro_batch_size);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_DATASET_H_
