// What the API needs done to sample from a job's weights. server/sample/sampler
// implements it; tests have a fake.
#ifndef ROUNDHOUSE_SERVER_API_SAMPLE_ENGINE_H_
#define ROUNDHOUSE_SERVER_API_SAMPLE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/access/caller.h"

namespace roundhouse {

inline constexpr size_t kMaxSamplePrompts = 256;
inline constexpr size_t kMaxSamplePromptBytes = 1 << 20;  // all together
inline constexpr int64_t kMaxNewTokens = 1024;
inline constexpr int64_t kDefaultNewTokens = 128;
inline constexpr double kMaxTemperature = 100;

// Within the limits above; at least one prompt.
struct SampleQuestion {
  Caller caller;      // who asks
  std::string model;  // a job, or a directory
  std::vector<std::string> prompts;
  int64_t max_new_tokens = kDefaultNewTokens;
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;
  bool raw = false;  // no chat template
};

// Why a completion has no more tokens; kNone: more may come.
enum class SampleEnd { kNone, kEndToken, kMaxNewTokens, kContextFull };

// The next of one completion.
struct SamplePiece {
  int prompt = 0;    // which, from 0
  std::string text;  // goes behind the texts before
  std::vector<int32_t> tokens;
  SampleEnd end = SampleEnd::kNone;
};

// Who asked.  Calls come one at a time, from any thread, and must return at
// once.
class SampleSink {
 public:
  virtual ~SampleSink() = default;
  // Once, before any piece: the directory of the weights.
  virtual void OnSource(const std::string& path) = 0;
  virtual void OnPiece(SamplePiece piece) = 0;
  // Last: OK, or why there is no more.  Statuses carry reason and field
  // (server/spec/spec_error.h).
  virtual void OnEnd(absl::Status status) = 0;
  // Nobody listens any more.
  virtual bool cancelled() const = 0;
};

// Thread-safe.
class SampleEngine {
 public:
  virtual ~SampleEngine() = default;
  // Blocks on file reads; what comes goes to the sink, also errors:
  // INVALID_ARGUMENT and NOT_FOUND of the request, FAILED_PRECONDITION (no
  // weights yet, no device), RESOURCE_EXHAUSTED (waiting requests, host or
  // device memory), UNAVAILABLE (the daemon stops), CANCELLED.  Shared, because
  // it is used from several threads until OnEnd.
  virtual void Start(const SampleQuestion& question,
                     std::shared_ptr<SampleSink> sink) = 0;
  // `sink` has become cancelled(); OnEnd still comes.
  virtual void Cancel(const SampleSink* sink) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_SAMPLE_ENGINE_H_
