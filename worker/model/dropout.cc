#include "worker/model/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace roundhouse::worker {
namespace {

// Other users of the job's seed draw under its plain halves.
constexpr uint32_t kDomain = 0x64726f70;  // "drop"
constexpr int64_t kWords = 4;             // of a Philox block
constexpr int64_t kBlocks = 16;           // drawn at a time

uint32_t Word(uint64_t value) { return static_cast<uint32_t>(value); }

}  // namespace

DropoutMask::DropoutMask(double probability, const DropoutKey& key,
                         int64_t layer, ParamRole matrix)
    : threshold_(static_cast<uint32_t>(std::ldexp(probability, 32))),
      kept_(1.0f / static_cast<float>(1.0 - probability)),
      site_(Philox4x32(
          {Word(key.step), Word(key.micro_batch),
           Word(static_cast<uint64_t>(layer)), static_cast<uint32_t>(matrix)},
          {Word(key.seed), Word(key.seed >> 32) ^ kDomain})) {
  ROUNDHOUSE_CHECK(probability >= 0 && probability < 1) << probability;
  ROUNDHOUSE_CHECK(key.step >> 32 == 0 && key.micro_batch >> 32 == 0)
      << key.step << " " << key.micro_batch;
}

void DropoutMask::Apply(int64_t row, int64_t token, const float* from,
                        float* to, int64_t features) const {
  // Word by word, so that the loop over blocks is one of whole vectors.
  uint32_t numbers[kWords][kBlocks];
  for (int64_t begin = 0; begin < features; begin += kWords * kBlocks) {
    for (int64_t i = 0; i < kBlocks; ++i) {
      const PhiloxBlock drawn =
          Philox4x32({Word(static_cast<uint64_t>(begin / kWords + i)),
                      Word(static_cast<uint64_t>(token)),
                      Word(static_cast<uint64_t>(row)), site_[2]},
                     {site_[0], site_[1]});
      for (int64_t word = 0; word < kWords; ++word) {
        numbers[word][i] = drawn[static_cast<size_t>(word)];
      }
    }
    const int64_t count = std::min(features - begin, kWords * kBlocks);
    for (int64_t i = 0; i < count; ++i) {
      const bool drops = numbers[i % kWords][i / kWords] < threshold_;
      to[begin + i] = from[begin + i] * (drops ? 0.0f : kept_);
    }
  }
}

}  // namespace roundhouse::worker
