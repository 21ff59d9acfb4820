// Prompts out of a file, and completions for people and scripts.  Pure;
// thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_SAMPLE_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_SAMPLE_OUTPUT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/model.pb.h"

namespace roundhouse::client {

// The prompts of a file of JSON Lines, each a string or an object with
// "prompt"; blank lines are skipped.  kInvalidArgument: "name:line: what".
absl::StatusOr<std::vector<std::string>> ParsePrompts(const std::string& text,
                                                      const std::string& name);

struct Completion {
  std::string prompt;
  std::string text;
  std::vector<int32_t> tokens;
  v1::SampleEnd end = v1::SAMPLE_END_UNSPECIFIED;
};

// Puts a piece behind what came before.  False: of a prompt that was not given.
bool AddPiece(const v1::SampleResponse& piece,
              std::vector<Completion>* completions);

// A head line, the prompt, and the completion behind it; what comes from the
// model moves no cursor.  The completion is green, or without `color` between
// "[[" and "]]".
std::string CompletionText(const Completion& completion, bool color);

// {"prompt", "completion", "tokens", "end"}; end is "end_token",
// "max_new_tokens", "context_full", or "" where more would have come.
nlohmann::ordered_json CompletionJson(const Completion& completion);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_SAMPLE_OUTPUT_H_
