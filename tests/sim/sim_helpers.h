// The dataset helper and the text helper in virtual time: children that live in
// the daemon's own process.  They take the arguments and descriptors of the
// real ones, answer as these do, and can be killed.
//
//   prepare.py         writes the same files for every dataset; where a fault
//                      is armed at prepared.array it ends as on a full disk
//   prepare_sample.py  each byte of a prompt is a token (TokensOf), each token
//                      a letter (LetterOf)
//
// What takes how long is drawn from a seed.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_TESTS_SIM_SIM_HELPERS_H_
#define ROUNDHOUSE_TESTS_SIM_SIM_HELPERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse::sim {

// Models know more tokens than prompts have, and the last one that
// fakes::DoneSample draws for them.
inline constexpr int32_t kPromptTokens = 36;
inline constexpr int32_t kEndToken = 39;
inline constexpr int kVocabulary = 40;

std::vector<int32_t> TokensOf(absl::string_view prompt);
char LetterOf(int32_t token);

struct SimHelpersOptions {
  std::string prepared;  // a folder with the files of every dataset
  uint64_t seed = 0;
  // What a child takes at most for a dataset, or until its first word.
  absl::Duration longest = absl::ZeroDuration();
};

class SimHelpers {
 public:
  explicit SimHelpers(const SimHelpersOptions& options);
  // REQUIRES: no child lives any more.
  ~SimHelpers();
  SimHelpers(const SimHelpers&) = delete;
  SimHelpers& operator=(const SimHelpers&) = delete;

  // ChildStarter.
  absl::StatusOr<std::unique_ptr<Child>> Start(
      EventLoop& loop, const ChildOptions& options,
      std::function<void(int wait_status)> on_exit,
      std::function<void(const std::string&)> on_stdout);

  // One of those that live gets SIGKILL, as from the kernel.  False: none does.
  bool KillOne();

 private:
  class Helper;
  class DataHelper;
  class TextHelper;

  absl::Duration Draw();

  const SimHelpersOptions options_;
  std::mt19937_64 random_;
  uint64_t next_number_ = 0;
  std::map<uint64_t, Helper*> alive_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_SIM_HELPERS_H_
