// A Qwen3 small enough to check every byte of, for the tests of this folder.
#ifndef ROUNDHOUSE_SERVER_JOBS_TEST_MODEL_H_
#define ROUNDHOUSE_SERVER_JOBS_TEST_MODEL_H_

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "base/model/config.h"
#include "server/jobs/training_state.h"

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

inline TrainingStateOptions TestStateOptions(bool tied,
                                             DType dtype = DType::kF32) {
  TrainingStateOptions options;
  options.job = 7;
  options.model = TestModel(tied);
  options.dtype = dtype;
  options.seed = 3;
  return options;
}

inline std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteTestFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_TEST_MODEL_H_
