#include "tests/parity/batches.h"

namespace roundhouse::parity {
namespace {

using worker::SequentialBatch;

// The last token of a sequence has no target, the one before it has.
int64_t Length(const Batches& batches, int64_t begin) {
  int64_t tokens = batches.row_tokens();
  while (batches.labels[static_cast<size_t>(begin + tokens - 2)] == -100) {
    --tokens;
  }
  return tokens;
}

}  // namespace

std::vector<SequentialBatch> Batches::Split(int64_t step, int64_t count) const {
  std::vector<SequentialBatch> batches;
  const int64_t rows_each = rows() / count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = Begin(step, i * rows_each);
    batches.push_back({.rows = rows_each,
                       .row_tokens = row_tokens(),
                       .tokens = tokens.data() + at,
                       .labels = labels.data() + at});
  }
  return batches;
}

SequentialBatch Batches::First(DType dtype) const {
  SequentialBatch batch = Split(0, 1)[0];
  if (dtype != DType::kF32 && !picks.empty()) batch.picks = picks.data();
  return batch;
}

std::vector<ExpertPick> Batches::WithoutPadding(
    const std::vector<ExpertPick>& picks) const {
  std::vector<ExpertPick> kept;
  if (picks.empty()) return kept;
  const int64_t each = pick_shape[3];
  const int64_t layer_picks = rows() * row_tokens() * each;
  for (int64_t at = 0; at < static_cast<int64_t>(picks.size()); at += each) {
    const int64_t token = at % layer_picks / each;
    const int64_t row = token / row_tokens();
    if (token % row_tokens() >= Length(*this, Begin(0, row))) continue;
    kept.insert(kept.end(), picks.begin() + at, picks.begin() + at + each);
  }
  return kept;
}

PackedBatch::PackedBatch(const Batches& batches, int64_t step)
    : row_tokens_(2 * batches.row_tokens()),
      unpacked_tokens_(batches.rows() * batches.row_tokens()) {
  for (int64_t row = 0; row < batches.rows(); ++row) {
    const int64_t begin = batches.Begin(step, row);
    Append(batches, begin, Length(batches, begin), row * batches.row_tokens());
  }
  PadRow();
  if (!batches.picks.empty()) PackPicks(batches);
}

void PackedBatch::PackPicks(const Batches& batches) {
  const int64_t each = batches.pick_shape[3];
  for (int64_t layer = 0; layer < batches.pick_shape[0]; ++layer) {
    for (const int64_t place : places_) {
      for (int64_t i = 0; i < each; ++i) {
        const int64_t at = (layer * unpacked_tokens_ + place) * each + i;
        picks_.push_back(place < 0 ? static_cast<ExpertPick>(i)
                                   : batches.picks[static_cast<size_t>(at)]);
      }
    }
  }
}

std::vector<float> PackedBatch::Unpack(const std::vector<float>& values) const {
  std::vector<float> unpacked(static_cast<size_t>(unpacked_tokens_), 0.0f);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] >= 0) unpacked[static_cast<size_t>(places_[i])] = values[i];
  }
  return unpacked;
}

int64_t PackedBatch::RoomInRow() const {
  const int64_t used = static_cast<int64_t>(tokens_.size()) % row_tokens_;
  return used == 0 ? 0 : row_tokens_ - used;
}

void PackedBatch::PadRow() {
  for (int64_t room = RoomInRow(); room > 0; --room) {
    tokens_.push_back(0);
    labels_.push_back(-100);
    positions_.push_back(positions_.back() + 1);
    places_.push_back(-1);
  }
}

void PackedBatch::Append(const Batches& batches, int64_t begin, int64_t length,
                         int64_t place) {
  if (RoomInRow() < length) PadRow();
  ++sequences_;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(begin + i);
    tokens_.push_back(batches.tokens[at]);
    labels_.push_back(batches.labels[at]);
    positions_.push_back(static_cast<int32_t>(i));
    places_.push_back(place + i);
  }
}

}  // namespace roundhouse::parity
