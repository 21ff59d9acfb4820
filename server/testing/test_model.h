// A Qwen3 small enough to check every byte of, for the tests of this folder.
#ifndef ROUNDHOUSE_SERVER_TESTING_TEST_MODEL_H_
#define ROUNDHOUSE_SERVER_TESTING_TEST_MODEL_H_

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "server/arena/host_arena.h"
#include "server/weights/base_weights.h"
#include "server/weights/training_state.h"

namespace roundhouse {

// `layers` decoder layers and the head.
inline ModelConfig TestModel(bool tied, int64_t layers = 3) {
  ModelConfig model;
  model.hidden_size = 24;
  model.layer_count = layers;
  model.head_count = 2;
  model.kv_head_count = 1;
  model.head_dim = 10;
  model.intermediate_size = 36;
  model.vocab_size = 50;
  model.max_position_tokens = 64;
  model.tie_word_embeddings = tied;
  return model;
}

// Adapters of every kind of shape: q_proj, v_proj, down_proj.
inline AdapterConfig TestAdapter() {
  return {.rank = 3, .alpha = 6, .dropout = 0.1, .targets = 0x45};
}

inline TrainingStateOptions TestStateOptions(bool tied,
                                             DType dtype = DType::kF32) {
  TrainingStateOptions options;
  options.job = 7;
  options.model = TestModel(tied);
  options.dtype = dtype;
  options.seed = 3;
  return options;
}

// The state of a job with `options`, with a base of its own where it needs one.
inline std::unique_ptr<TrainingState> MakeTestState(
    HostArena& arena, const TrainingStateOptions& options) {
  std::shared_ptr<BaseWeights> base;
  if (options.adapter.present()) {
    base = *BaseWeights::Create(arena, options.model, options.dtype);
  }
  return *TrainingState::Create(arena, options, base);
}

inline std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteTestFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// In place of prepare_sample.py: answers with `prompts` and end tokens 9 and
// 77, then a "t" for each sequence.
inline std::string TextHelperScript(const std::string& prompts,
                                    const std::string& control_tokens = "[]") {
  return absl::StrCat(
      "echo '{\"prompts\": ", prompts,
      ", \"end_tokens\": [9, 77], \"control_tokens\": ", control_tokens, "}'\n",
      R"sh(while read -r line <&4; do
  ends=$(grep -o 'true\|false' <<<"$line" | sed 's/.*/"t"/' | paste -sd,)
  echo "{\"texts\": [$ends]}"
done
)sh");
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TESTING_TEST_MODEL_H_
