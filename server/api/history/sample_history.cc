#include "server/api/history/sample_history.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>

#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using Json = nlohmann::json;

std::optional<v1::EvalSample> ParseLine(const std::string& line) {
  const Json in = Json::parse(line, nullptr, false);
  try {
    v1::EvalSample sample;
    sample.set_step(in.at("step").get<int64_t>());
    sample.set_index(in.at("index").get<int32_t>());
    sample.set_prompt(in.at("prompt").get<std::string>());
    sample.set_completion(in.at("completion").get<std::string>());
    const auto tokens = in.at("tokens").get<std::vector<int32_t>>();
    sample.mutable_tokens()->Assign(tokens.begin(), tokens.end());
    return sample;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::vector<v1::EvalSample>> ReadNewestSamples(
    const std::string& path) {
  std::vector<v1::EvalSample> newest;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::optional<v1::EvalSample> sample = ParseLine(line);
    if (!sample.has_value()) continue;
    if (!newest.empty() && newest.back().step() != sample->step()) {
      newest.clear();
    }
    newest.push_back(*std::move(sample));
  }
  if (file.bad()) return absl::InternalError("reading the samples");
  return newest;
}

}  // namespace roundhouse
