#include "client/tables/sample_output.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr char kCompletionColor[] = "\x1b[32m";
constexpr char kNoColor[] = "\x1b[0m";

const char* EndName(v1::SampleEnd end) {
  switch (end) {
    case v1::END_TOKEN:
      return "end_token";
    case v1::MAX_NEW_TOKENS:
      return "max_new_tokens";
    case v1::CONTEXT_FULL:
      return "context_full";
    default:
      return "";
  }
}

const char* EndText(v1::SampleEnd end) {
  switch (end) {
    case v1::END_TOKEN:
      return "ended";
    case v1::MAX_NEW_TOKENS:
      return "cut off";
    case v1::CONTEXT_FULL:
      return "the model takes no more";
    default:
      return "not finished";
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParsePrompts(const std::string& text,
                                                      const std::string& name) {
  std::vector<std::string> prompts;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    auto value = nlohmann::json::parse(line.begin(), line.end(), nullptr,
                                       /*allow_exceptions=*/false);
    if (value.is_object() && value.contains("prompt")) value = value["prompt"];
    if (!value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number,
                       ": expected a JSON string, or an object with a string "
                       "\"prompt\""));
    }
    prompts.push_back(value.get<std::string>());
  }
  return prompts;
}

bool AddPiece(const v1::SampleResponse& piece,
              std::vector<Completion>* completions) {
  const int prompt = piece.prompt();
  if (prompt < 0 || static_cast<size_t>(prompt) >= completions->size()) {
    return false;
  }
  Completion& completion = (*completions)[prompt];
  completion.text += piece.text();
  completion.tokens.insert(completion.tokens.end(), piece.tokens().begin(),
                           piece.tokens().end());
  completion.end = piece.end();
  return true;
}

std::string CompletionText(const Completion& completion, bool color) {
  const std::string text = VisibleText(completion.text);
  return absl::StrCat(
      "--- ",
      CountText(static_cast<int64_t>(completion.tokens.size()), "token"), ", ",
      EndText(completion.end), "\n", VisibleText(completion.prompt),
      color ? kCompletionColor : "[[", text, color ? kNoColor : "]]", "\n");
}

nlohmann::ordered_json CompletionJson(const Completion& completion) {
  nlohmann::ordered_json json;
  json["prompt"] = completion.prompt;
  json["completion"] = completion.text;
  json["tokens"] = completion.tokens;
  json["end"] = EndName(completion.end);
  return json;
}

}  // namespace roundhouse::client
