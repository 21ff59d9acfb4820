// Text to tokens and back for a sample: one run of server/dataset/
// prepare_sample.py, which tokenizes all prompts first and then gives the text
// of what is drawn as it is drawn.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_DATASET_TEXT_HELPER_H_
#define ROUNDHOUSE_SERVER_DATASET_TEXT_HELPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/descriptor.h"
#include "server/dataset/dataset_helper.h"

namespace roundhouse {

// The longest line of the helper.
inline constexpr size_t kMaxTextHelperBytes = 32 << 20;

struct TextHelperOptions {
  HelperProgram program;            // prepare_sample.py
  std::string tokenizer_directory;  // tokenizer.json, chat template
  std::string model_directory;      // config.json
  bool raw = false;                 // no chat template
  std::string template_date;        // YYYY-MM-DD; "": today
  GivenFiles given;  // all that is read; empty: names are paths, for tests
};

struct TokenizedPrompts {
  std::vector<std::vector<int32_t>> prompts;  // none is empty
  std::vector<int32_t> end_tokens;            // ascending
  // Prompts for the chat template that have special tokens of the tokenizer in
  // their text, which the model reads as such; by number.
  std::vector<int> control_tokens;
};

// Behind prompt number `prompt` and what was drawn before.
struct DrawnTokens {
  int prompt = 0;
  std::vector<int32_t> tokens;
  bool last = false;
};

class TextHelper {
 public:
  using Tokenized = std::function<void(TokenizedPrompts)>;
  // What each of them adds to its completion's text.
  using Decoded = std::function<void(std::vector<std::string>)>;

  // UNAVAILABLE or INTERNAL: there is no room for what it is told.
  // `tokenized` is called once, unless the child ends before.  `ended` is
  // called once, with DatasetHelper's statuses (INVALID_ARGUMENT names the
  // prompt) or what Kill said; only there may the helper be destroyed, of all
  // its calls.
  static absl::StatusOr<std::unique_ptr<TextHelper>> Start(
      EventLoop& loop, const TextHelperOptions& options,
      const std::vector<std::string>& prompts, Tokenized tokenized,
      std::function<void(absl::Status)> ended);
  // Kills the child; nothing is called any more.
  ~TextHelper();

  // REQUIRES: `tokenized` was called, and the last Decode has been answered.
  void Decode(const std::vector<DrawnTokens>& drawn, Decoded decoded);
  void Kill(absl::Status why) { helper_->Kill(std::move(why)); }
  // As DatasetHelper's.
  bool started() const { return helper_->started(); }
  bool killed_by_others() const { return helper_->killed_by_others(); }

 private:
  explicit TextHelper(Tokenized tokenized) : tokenized_(std::move(tokenized)) {}

  void OnOutput(const std::string& text);
  // False when the helper says what it should not.
  bool OnLine(const std::string& line);

  Tokenized tokenized_;  // null once called
  Decoded decoded_;      // of the Decode that is waited for
  std::string rest_;     // of a line
  Descriptor socket_;
  std::unique_ptr<DatasetHelper> helper_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_TEXT_HELPER_H_
