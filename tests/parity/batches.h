// The goldens' batches as the sequential reference takes them.
#ifndef ROUNDHOUSE_TESTS_PARITY_BATCHES_H_
#define ROUNDHOUSE_TESTS_PARITY_BATCHES_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "tests/parity/goldens.h"
#include "worker/model/sequential.h"

namespace roundhouse::parity {

// generate.py's tokens and labels: some steps of as many padded rows each.
struct Batches {
  // Picks are those of `picked`, which may be of an adapter.
  Batches(const Goldens& goldens, const Goldens& picked)
      : shape(goldens.Shape("tokens")),
        tokens(goldens.Ints("tokens")),
        labels(goldens.Ints("labels")) {
    if (!picked.Has("picks")) return;
    pick_shape = picked.Shape("picks");
    const std::vector<int32_t> given = picked.Ints("picks");
    picks.assign(given.begin(), given.end());
  }

  int64_t steps() const { return shape[0]; }
  int64_t rows() const { return shape[1]; }
  int64_t row_tokens() const { return shape[2]; }
  // Where a row of a step begins in `tokens`.
  int64_t Begin(int64_t step, int64_t row) const {
    return (step * rows() + row) * row_tokens();
  }
  // The micro-batches of a step, `count` of equal size.  Borrowed.
  std::vector<worker::SequentialBatch> Split(int64_t step, int64_t count) const;

  // Step 0 as one micro-batch.  Of two byte types a model's experts are those
  // that transformers picked in fp32: rounding would pick others.  Borrowed.
  worker::SequentialBatch First(DType dtype) const;

  // Leaves out the picks of padding: what that attends to is transformers'
  // affair.
  std::vector<ExpertPick> WithoutPadding(
      const std::vector<ExpertPick>& picks) const;

  std::vector<int64_t> shape;  // steps, rows, row tokens
  std::vector<int32_t> tokens, labels;
  // Step 0's, where the model has experts: [layers with experts, rows, row
  // tokens, experts a token].
  std::vector<int64_t> pick_shape;
  std::vector<ExpertPick> picks;
};

// One step's sequences, as many to a row of twice their padded length as fit.
class PackedBatch {
 public:
  PackedBatch(const Batches& batches, int64_t step);

  // With picks as Batches::First, for which it must be of step 0.
  worker::SequentialBatch Borrow(DType dtype = DType::kF32) const {
    return {.rows = static_cast<int64_t>(tokens_.size()) / row_tokens_,
            .row_tokens = row_tokens_,
            .tokens = tokens_.data(),
            .labels = labels_.data(),
            .positions = positions_.data(),
            .picks = dtype == DType::kF32 || picks_.empty() ? nullptr
                                                            : picks_.data()};
  }
  int64_t sequences() const { return sequences_; }
  // A value a token, [rows, row tokens] of the packed rows, back to the places
  // of the step's own rows; 0 where these are padded.
  std::vector<float> Unpack(const std::vector<float>& values) const;

 private:
  int64_t RoomInRow() const;
  void PadRow();
  // The picks of the places' tokens; padding has the first experts.
  void PackPicks(const Batches& batches);
  void Append(const Batches& batches, int64_t begin, int64_t length,
              int64_t place);

  const int64_t row_tokens_, unpacked_tokens_;
  int64_t sequences_ = 0;
  std::vector<int32_t> tokens_, labels_, positions_;
  std::vector<int64_t> places_;  // in the step's rows; -1: padding
  std::vector<ExpertPick> picks_;
};

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_BATCHES_H_
