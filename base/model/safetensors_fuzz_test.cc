#include <cstdint>
#include <random>
#include <string>

#include "base/model/mutation.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"
#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace roundhouse {
namespace {

// 80 data bytes, as the fuzz entry takes for given.
constexpr char kSeedHeader[] = R"({"__metadata__":{"format":"pt"},
"a":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},
"e":{"dtype":"U8","shape":[0],"data_offsets":[64,64]},
"b":{"dtype":"BF16","shape":[8],"data_offsets":[64,80]}})";

constexpr char kSeedIndex[] = R"({"metadata":{"total_size":80},"weight_map":{
"a":"model-00001-of-00002.safetensors",
"b":"model-00002-of-00002.safetensors"}})";

int FuzzOne(const std::string& json) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(json.data()),
                                json.size());
}

TEST(SafetensorsFuzzTest, SeededHeaderMutations) {
  std::mt19937_64 random(20261);
  int accepted = 0;
  constexpr int kInputs = 20000;
  for (int i = 0; i < kInputs; ++i) {
    const std::string json = Mutate(kSeedHeader, &random);
    accepted +=
        ParseSafetensorsHeader(json, 8 + json.size() + 80, "file").ok() ? 1 : 0;
    FuzzOne(json);
  }
  EXPECT_GT(accepted, kInputs / 100);
  EXPECT_LT(accepted, kInputs * 9 / 10);
}

TEST(SafetensorsFuzzTest, SeededIndexMutations) {
  std::mt19937_64 random(20262);
  int accepted = 0;
  constexpr int kInputs = 20000;
  for (int i = 0; i < kInputs; ++i) {
    const std::string json = Mutate(kSeedIndex, &random);
    accepted += ParseSafetensorsIndex(json, "index").ok() ? 1 : 0;
    FuzzOne(json);
  }
  EXPECT_GT(accepted, kInputs / 100);
  EXPECT_LT(accepted, kInputs * 9 / 10);
}

}  // namespace
}  // namespace roundhouse
