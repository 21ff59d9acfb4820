// Seeded mutations of job files through the fuzz entry point.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/spec/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace roundhouse {
namespace {

std::vector<std::string> Seeds() {
  return {
      "model: m\ndataset: d\n",
      "model_name_or_path: a\ndataset: b\nplan: {forward: [[0,1],[2,2]], "
      "backward: [[3,4],[1,2],[0,0]], forward_width: 2, backward_width: "
      "[1,[1,2],3]}\ngradient_groups: 3\nmetadata: {k: \"v\\u00e9\", n: 1e5}\n",
      "{\"model\": \"m\", \"dataset\": \"d\\\"q\", \"learning_rate\": 3e-4, "
      "\"max_steps\": 10, \"warmup_steps\": 2, \"bf16\": true}",
      "base_model: m\ntrain_file: |\n  a\n  b\nseed: 7\nsuffix: x.y\n"
      "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n",
      "base_model: m\ndataset: d\nadapter: lora\nlora_target_linear: True\n"
      "save_strategy: no\nneat_packing: true\noutput_dir: o\nbf16: auto\n"
      "",
      "model: m\ndataset: d\nuse_peft: yes\nlora_target: q_proj, v_proj\n"
      "truncation_mode: keep_end\nreport_to: [a]\ntorch_dtype: bfloat16\n",
      "model: &m [x]\ndataset: *m\n? a\n: b\n"};
}

// Pieces that mean something to a YAML reader or to us.
constexpr const char* kPieces[] = {":",
                                   "\n",
                                   "- ",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "\"",
                                   "'",
                                   "&a ",
                                   "*a",
                                   "!!str",
                                   "|",
                                   ">",
                                   "%YAML 1.9",
                                   "---\n",
                                   "~",
                                   "#",
                                   "1e309",
                                   "-1",
                                   "auto",
                                   "\\u0000",
                                   "\xc3\xa9",
                                   "\xff",
                                   "\t",
                                   "? ",
                                   "<<: ",
                                   ",",
                                   "0x1",
                                   "plan: ",
                                   "metadata: ",
                                   "\xe2\x80\xa8",
                                   "\nreport_to: x\n",
                                   "\nseed: 1\n"};

std::string Mutate(std::string text, std::mt19937_64* rng) {
  const int edits = 1 + static_cast<int>((*rng)() % 6);
  for (int i = 0; i < edits; ++i) {
    const size_t at = (*rng)() % (text.size() + 1);
    switch ((*rng)() % 4) {
      case 0:
        text.insert(at, kPieces[(*rng)() % std::size(kPieces)]);
        break;
      case 1:
        text.erase(at, (*rng)() % 8);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>((*rng)());
        break;
      default:
        text.insert(at, text.substr((*rng)() % (text.size() + 1), 20));
    }
  }
  return text;
}

TEST(SpecFuzzTest, MutatedJobFilesNeverCrashAndRoundTrip) {
  std::mt19937_64 rng(20261121);
  int accepted = 0;
  constexpr int kRounds = 20000;
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<std::string> seeds = Seeds();
    const std::string text = Mutate(seeds[rng() % seeds.size()], &rng);
    SCOPED_TRACE(text);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()),
                           text.size());
    accepted += ParseJobSpec(text, "f").ok() ? 1 : 0;
  }
  // Both ways are well trodden.
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds / 2);
}

}  // namespace
}  // namespace roundhouse
