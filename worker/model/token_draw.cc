#include "worker/model/token_draw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

constexpr uint32_t kSampleKey = 0x73616d70;  // "samp"

absl::Status CheckFinite(const float* logits, int64_t vocab_size) {
  for (int64_t i = 0; i < vocab_size; ++i) {
    if (std::isfinite(logits[i])) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the logit of token ", i, " is ", logits[i]));
  }
  return absl::OkStatus();
}

// In [0, 1).
double UniformNumber(const DrawKey& key) {
  const PhiloxBlock words =
      Philox4x32({key.index, key.sequence, 0, 0},
                 {static_cast<uint32_t>(key.seed),
                  static_cast<uint32_t>(key.seed >> 32) ^ kSampleKey});
  const uint64_t both = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(both >> 11) * 0x1p-53;
}

}  // namespace

absl::StatusOr<int32_t> DrawToken(const float* logits, int64_t vocab_size,
                                  double temperature, const DrawKey& key) {
  RETURN_IF_ERROR(CheckFinite(logits, vocab_size));
  const float* const largest = std::max_element(logits, logits + vocab_size);
  if (temperature == 0) return static_cast<int32_t>(largest - logits);
  std::vector<double> sums;
  double sum = 0;
  for (int64_t i = 0; i < vocab_size; ++i) {
    const double below = static_cast<double>(logits[i]) - *largest;
    sum += std::exp(below / temperature);
    sums.push_back(sum);
  }
  // The product may round up to the sum itself: then the last token that adds
  // to it.
  const double target = UniformNumber(key) * sum;
  auto found = std::upper_bound(sums.begin(), sums.end(), target);
  if (found == sums.end()) found = std::lower_bound(sums.begin(), found, sum);
  return static_cast<int32_t>(found - sums.begin());
}

}  // namespace roundhouse::worker
