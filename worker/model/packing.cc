#include "worker/model/packing.h"

#include "absl/strings/str_cat.h"

namespace roundhouse::worker {
absl::StatusOr<Packing> ReadPacking(const int32_t* positions, int64_t rows,
                                    int64_t row_tokens) {
  Packing packing;
  for (int64_t i = 0; i < rows * row_tokens; ++i) {
    const int32_t position = positions[i];
    const int64_t token = i % row_tokens;
    if (position == 0) {
      packing.sequence_tokens.push_back(1);
      continue;
    }
    if (token == 0 || position - 1 != positions[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", i / row_tokens, ", token ", token, ": position ", position,
          token == 0 ? " begins a row, expected 0"
                     : absl::StrCat(" follows ", positions[i - 1],
                                    ", expected the next one or 0")));
    }
    ++packing.sequence_tokens.back();
  }
  if (static_cast<int64_t>(packing.sequence_tokens.size()) == rows)
    return Packing();
  return packing;
}

at::Tensor SequenceStarts(const Packing& packing) {
  std::vector<int32_t> starts = {0};
  for (const int64_t tokens : packing.sequence_tokens) {
    starts.push_back(starts.back() + static_cast<int32_t>(tokens));
  }
  return at::tensor(starts, at::kInt);
}

}  // namespace roundhouse::worker
