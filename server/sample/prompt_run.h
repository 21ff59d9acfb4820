// Prompts to completions: one run of the text helper tokenizes them and gives
// text for tokens, and groups of sequences are continued on one device each, 16
// tokens at a time, with weights that somebody else has in the arena.
//
//   tokenizing -> tokenized -> (Draw) drawing <-> decoding -> over
//
// A helper that somebody else kills while it tokenizes is started again, at
// most kMaxHelperDeaths - 1 times.
//
// However it ends, `over` comes only when neither the helper nor a worker has
// anything of it any more.  Runs on the event loop's thread; whoever owns it
// says when workers come up and devices are lost.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_PROMPT_RUN_H_
#define ROUNDHOUSE_SERVER_SAMPLE_PROMPT_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/model/config.h"
#include "base/wire/commands.h"
#include "server/api/sample_engine.h"
#include "server/arena/host_arena.h"
#include "server/dataset/text_helper.h"
#include "server/loop/event_loop.h"
#include "server/sample/sample_batch.h"
#include "server/workers/replies.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

// Sequences of one group: what one device continues together.
inline constexpr size_t kSampleGroup = 32;
// A run's groups take at most as many numbers of samples.
inline constexpr uint64_t kSampleNumbers = 1024;
// A command whose device died that often is given up, before it has cost every
// device.
inline constexpr int kMaxSampleDeaths = 3;

struct PromptRunOptions {
  TextHelperOptions text;
  std::vector<std::string> prompts;
  std::string field = "prompts";  // what messages call them
  ModelConfig model;
  uint64_t job = 0;           // whose layout the devices have
  uint64_t first_sample = 0;  // RunSample::sample; each group has the next one
  int64_t max_new_tokens = 0;
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;
  int first_device = 0;  // of the first group
};

struct PromptRunCalls {
  // The model takes the prompts; Draw may be called, here or later.
  std::function<void()> tokenized;
  // Before each command.
  std::function<void(WorkerId)> configure = [](WorkerId) {};
  std::function<void(SamplePiece)> piece;
  // A device has computed for it for as long.
  std::function<void(int64_t ns)> computed = [](int64_t) {};
  // Once: OK or what ended it.  It may not destroy the run.
  std::function<void(absl::Status)> over;
};

class PromptRun final : private ReplyHandler {
 public:
  PromptRun(EventLoop& loop, HostArena& arena, WorkerPool& pool,
            PromptRunOptions options, PromptRunCalls calls);
  // REQUIRES: `over` came, or the workers are gone.
  ~PromptRun() override;

  void Start();
  // With weights that nobody writes before `over`.  REQUIRES: `tokenized` came.
  void Draw(std::vector<wire::SlotUnit> units);
  // The first `why` counts.
  void End(absl::Status why);
  // Prompts that have special tokens of the tokenizer in their text, by number.
  const std::vector<int>& control_tokens() const {
    return prompts_.control_tokens;
  }

  void OnWorkerUp(WorkerId worker);
  void OnDeviceLost();

 private:
  void OnReply(WorkerId worker, const wire::Message& reply) override;
  void OnLost(WorkerId worker, uint64_t attempt,
              const std::string& why) override;
  void OnTokenized(TokenizedPrompts prompts);
  absl::Status CheckPrompts(const TokenizedPrompts& prompts) const;
  absl::Status CheckPrompt(const std::string& name,
                           const std::vector<int32_t>& tokens) const;
  absl::Status HelperError(const absl::Status& status) const;
  void OnHelperEnded(const absl::Status& status);

  void BeginGroup();
  void SendCommand();
  std::optional<DeviceId> UpDevice() const;
  void OnSampleDone(const wire::SampleDone& done);
  void OnDecoded(std::vector<SamplePiece> pieces,
                 const std::vector<std::string>& texts);
  void GoOn();
  void OnFailed(const wire::Failed& failed);
  void ReleaseIfQuiet();

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPool& pool_;
  const PromptRunOptions options_;
  const PromptRunCalls calls_;

  std::unique_ptr<TextHelper> helper_;
  TokenizedPrompts prompts_;
  std::vector<wire::SlotUnit> units_;
  std::unique_ptr<SampleBatch> batch_;
  size_t next_prompt_ = 0;  // the first that is in no group yet
  size_t group_size_ = kSampleGroup;
  uint64_t next_sample_;
  int device_;             // of the group, while it lives
  int deaths_ = 0;         // of devices with the command
  int helper_deaths_ = 0;  // by others' hands, before it had tokenized
  bool wants_device_ = false;
  bool out_ = false;  // a command is with a device
  std::optional<absl::Status> ended_;
  bool released_ = false;
  EventLoop::TimerId release_timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_PROMPT_RUN_H_
