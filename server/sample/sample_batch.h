// A few sequences that are continued together on one device, command by
// command, with their tokens in the host arena.
//
// A command carries everything: after a device's death the same one goes to
// another.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_BATCH_H_
#define ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_BATCH_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/commands.h"
#include "base/wire/events.h"
#include "server/api/sample_engine.h"
#include "server/arena/host_arena.h"

namespace roundhouse {

// New tokens of each sequence in one command: what a training slot may have to
// wait for.
inline constexpr int64_t kSampleCommandTokens = 16;

struct SampleBatchOptions {
  uint64_t job = 0;
  uint64_t sample = 0;  // RunSample::sample
  int64_t max_new_tokens = 0;
  int64_t max_position_tokens = 0;  // of the model
  int64_t vocab_size = 0;
  double temperature = 0;
  uint64_t seed = 0;
  std::vector<wire::SlotUnit> units;
  std::vector<int32_t> end_tokens;
};

struct SamplePrompt {
  int number = 0;  // of the request
  // At least one, fewer than max_position_tokens.
  std::vector<int32_t> tokens;
};

class SampleBatch {
 public:
  // RESOURCE_EXHAUSTED as HostArena::Allocate.
  static absl::StatusOr<std::unique_ptr<SampleBatch>> Create(
      HostArena& arena, const SampleBatchOptions& options,
      const std::vector<SamplePrompt>& prompts);

  bool done() const { return Active().empty(); }
  // Nothing was accepted yet.
  bool fresh() const { return !accepted_; }
  size_t size() const { return sequences_.size(); }

  // The same until Accept.  REQUIRES: !done().
  wire::RunSample Command() const;
  // What the command gave, by its sequences, without text.  INTERNAL names what
  // no right worker answers; nothing is accepted then.
  absl::StatusOr<std::vector<SamplePiece>> Accept(const wire::SampleDone& done);

 private:
  struct Sequence {
    int number = 0;
    int64_t prompt_tokens = 0;
    int64_t tokens = 0;  // with the prompt's
    uint64_t offset = 0;
    SampleEnd end = SampleEnd::kNone;
  };

  SampleBatch(HostArena& arena, const SampleBatchOptions& options)
      : arena_(arena), options_(options) {}

  std::vector<int> Active() const;
  // The new tokens of the next command.
  int64_t NewTokens() const;
  int64_t RoomTokens(const Sequence& sequence) const;
  absl::Status Check(const wire::SampleDone& done) const;
  void Append(Sequence& sequence, const std::vector<int32_t>& tokens);

  HostArena& arena_;
  const SampleBatchOptions options_;
  ArenaRange range_;
  std::vector<Sequence> sequences_;
  bool accepted_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SAMPLE_SAMPLE_BATCH_H_
