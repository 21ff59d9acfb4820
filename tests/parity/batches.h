// The goldens' batches as the sequential reference takes them.
#ifndef ROUNDHOUSE_TESTS_PARITY_BATCHES_H_
#define ROUNDHOUSE_TESTS_PARITY_BATCHES_H_

#include <cstdint>
#include <vector>

#include "tests/parity/goldens.h"
#include "worker/model/sequential.h"

namespace roundhouse::parity {

// generate.py's tokens and labels: some steps of as many padded rows each.
struct Batches {
  explicit Batches(const Goldens& goldens)
      : shape(goldens.Shape("tokens")),
        tokens(goldens.Ints("tokens")),
        labels(goldens.Ints("labels")) {}

  int64_t steps() const { return shape[0]; }
  int64_t rows() const { return shape[1]; }
  int64_t row_tokens() const { return shape[2]; }
  // Where a row of a step begins in `tokens`.
  int64_t Begin(int64_t step, int64_t row) const {
    return (step * rows() + row) * row_tokens();
  }
  // The micro-batches of a step, `count` of equal size.  Borrowed.
  std::vector<worker::SequentialBatch> Split(int64_t step, int64_t count) const;

  std::vector<int64_t> shape;  // steps, rows, row tokens
  std::vector<int32_t> tokens, labels;
};

// One step's sequences, as many to a row of twice their padded length as fit.
class PackedBatch {
 public:
  PackedBatch(const Batches& batches, int64_t step);

  worker::SequentialBatch Borrow() const {
    return {static_cast<int64_t>(tokens_.size()) / row_tokens_, row_tokens_,
            tokens_.data(), labels_.data(), positions_.data()};
  }
  int64_t sequences() const { return sequences_; }
  // A value a token, [rows, row tokens] of the packed rows, back to the places
  // of the step's own rows; 0 where these are padded.
  std::vector<float> Unpack(const std::vector<float>& values) const;

 private:
  int64_t RoomInRow() const;
  void PadRow();
  void Append(const Batches& batches, int64_t begin, int64_t length,
              int64_t place);

  const int64_t row_tokens_, unpacked_tokens_;
  int64_t sequences_ = 0;
  std::vector<int32_t> tokens_, labels_, positions_;
  std::vector<int64_t> places_;  // in the step's rows; -1: padding
};

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_BATCHES_H_
