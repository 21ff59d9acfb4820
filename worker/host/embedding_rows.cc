#include "worker/host/embedding_rows.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

void Add(float* sum, const float* addend, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) sum[i] += addend[i];
}

void AddConverted(DType dtype, const std::byte* addend, float* sum,
                  uint64_t count) {
  const auto* half = reinterpret_cast<const uint16_t*>(addend);
  switch (dtype) {
    case DType::kF32:
      Add(sum, reinterpret_cast<const float*>(addend), count);
      return;
    case DType::kBF16:
      for (uint64_t i = 0; i < count; ++i) sum[i] += BF16ToF32(half[i]);
      return;
    case DType::kF16:
      for (uint64_t i = 0; i < count; ++i) sum[i] += F16ToF32(half[i]);
      return;
  }
}

}  // namespace

absl::StatusOr<TokenBatch> CheckTokenBatch(wire::Arena& arena,
                                           const wire::HostMicroBatch& batch,
                                           size_t index, uint64_t vocab,
                                           uint64_t hidden, DType dtype) {
  const uint64_t positions = uint64_t{batch.rows} * batch.row_tokens;
  const uint64_t row_bytes = hidden * DTypeBytes(dtype);
  if (positions > UINT32_MAX ||
      batch.tokens.bytes / sizeof(int32_t) < positions ||
      batch.data.bytes / row_bytes < positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro-batch ", index, ": ", batch.rows, " x ", batch.row_tokens,
        " tokens with ", batch.tokens.bytes, " bytes of tokens and ",
        batch.data.bytes, " bytes of data"));
  }
  const TokenBatch checked = {batch.group, positions,
                              arena.At<int32_t>(batch.tokens.offset, positions),
                              arena.Bytes(batch.data)};
  for (uint64_t i = 0; i < positions; ++i) {
    if (checked.tokens[i] >= 0 &&
        static_cast<uint64_t>(checked.tokens[i]) >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", index, " position ", i, ": token ",
                       checked.tokens[i], " in a vocabulary of ", vocab));
    }
  }
  return checked;
}

absl::StatusOr<EmbeddingRows> EmbeddingRows::Make(
    std::vector<TokenBatch> batches, uint32_t total_groups, uint64_t vocab,
    uint64_t hidden, DType dtype) {
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].group >= total_groups ||
        (i > 0 && batches[i].group < batches[i - 1].group)) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", i, ": group ", batches[i].group, " of ",
                       total_groups, " is out of order"));
    }
  }
  EmbeddingRows rows;
  rows.batches_ = std::move(batches);
  rows.hidden_ = hidden;
  rows.dtype_ = dtype;
  rows.program_ = TreeProgram::Make(std::vector<int64_t>(total_groups, 1));
  rows.IndexTokens(vocab);
  return rows;
}

void EmbeddingRows::IndexTokens(uint64_t vocab) {
  starts_.assign(vocab + 1, 0);
  for (const TokenBatch& batch : batches_) {
    for (uint64_t i = 0; i < batch.positions; ++i) {
      if (batch.tokens[i] >= 0) ++starts_[batch.tokens[i] + 1];
    }
  }
  for (uint64_t row = 0; row < vocab; ++row) starts_[row + 1] += starts_[row];
  places_.resize(starts_[vocab]);
  std::vector<uint64_t> next(starts_.begin(), starts_.end() - 1);
  for (uint32_t b = 0; b < batches_.size(); ++b) {
    for (uint32_t i = 0; i < batches_[b].positions; ++i) {
      const int32_t token = batches_[b].tokens[i];
      if (token >= 0) places_[next[token]++] = {b, i};
    }
  }
}

EmbeddingRows::Stack EmbeddingRows::MakeStack() const {
  return Stack(program_.depth, std::vector<float>(hidden_));
}

void EmbeddingRows::Sum(uint64_t row, uint64_t column, uint64_t count,
                        Stack& stack, float* sum) const {
  uint64_t place = starts_[row];
  const uint64_t end = starts_[row + 1];
  std::vector<bool> present(stack.size());
  size_t top = 0;
  for (uint32_t group = 0; group < program_.merges.size(); ++group) {
    const uint64_t after =
        SumGroup(place, end, group, column, count, stack[top].data());
    present[top++] = after != place;
    place = after;
    for (int merge = 0; merge < program_.merges[group]; ++merge) {
      --top;
      if (!present[top]) continue;
      if (present[top - 1]) {
        Add(stack[top - 1].data(), stack[top].data(), count);
      } else {
        stack[top - 1].swap(stack[top]);
        present[top - 1] = true;
      }
    }
  }
  ROUNDHOUSE_CHECK(top == 1 && place == end && present[0]);
  std::memcpy(sum, stack[0].data(), count * sizeof(float));
}

uint64_t EmbeddingRows::SumGroup(uint64_t place, uint64_t end, uint32_t group,
                                 uint64_t column, uint64_t count,
                                 float* sum) const {
  const uint64_t first = place;
  for (; place < end && batches_[places_[place].batch].group == group;
       ++place) {
    const TokenBatch& batch = batches_[places_[place].batch];
    const uint64_t element = places_[place].position * hidden_ + column;
    const std::byte* addend = batch.data + element * DTypeBytes(dtype_);
    if (place == first) {
      ToF32(dtype_, addend, sum, count);
    } else {
      AddConverted(dtype_, addend, sum, count);
    }
  }
  return place;
}

}  // namespace roundhouse::worker
