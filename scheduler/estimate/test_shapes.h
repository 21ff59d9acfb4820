// The models that tests of planning are about: scheduler/testdata/models.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_TEST_SHAPES_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_TEST_SHAPES_H_

#include <fstream>
#include <sstream>
#include <string>

#include "base/log.h"
#include "base/model/model_shape.h"
#include "base/model/parameters.h"
#include "scheduler/estimate/training_costs.h"

namespace roundhouse {

// "qwen3-32b".
inline ModelShape TestShape(const std::string& name) {
  const std::string path = "scheduler/testdata/models/" + name + "/config.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto shape = ParseModelShape(text.str(), path);
  ROUNDHOUSE_CHECK(shape.ok()) << shape.status();
  return *shape;
}

// One micro-batch of 4 x 2048 tokens, as the measured ones.
inline TrainingSetup TestSetup(const std::string& name) {
  TrainingSetup setup;
  setup.shape = TestShape(name);
  setup.sequence_tokens = 2048;
  setup.micro_batch_sequences = 4;
  return setup;
}

// The same with adapters of q_proj and v_proj.
inline TrainingSetup TestLora(const std::string& name, int64_t rank) {
  TrainingSetup setup = TestSetup(name);
  setup.method = TrainingMethod::kLora;
  setup.lora_rank = rank;
  setup.lora_targets = TargetModuleBit("q_proj") | TargetModuleBit("v_proj");
  return setup;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_TEST_SHAPES_H_
