// For tests: a small job laid out in an arena of its own, and the daemon's side
// of a conversation with a worker.  Two units: 0 is the embedding (or the tied
// matrix), 1 a layer of three parameters, one of them without weight decay.
// Chunk ends fall inside rows.  With adapters unit 0 is frozen and unit 1 fp32.
#ifndef ROUNDHOUSE_WORKER_HOST_TEST_JOB_H_
#define ROUNDHOUSE_WORKER_HOST_TEST_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "base/wire/messages.h"

namespace roundhouse::worker {

struct TestJobOptions {
  DType dtype = DType::kF32;
  bool adapters = false;
  int64_t vocab = 300;
  int64_t hidden = 120;
  uint32_t scratch_slots = 3;
  uint64_t seed = 1;
};

class TestJob {
 public:
  static constexpr uint64_t kJob = 7;
  static constexpr uint64_t kArenaBytes = 64 << 20;

  explicit TestJob(const TestJobOptions& options);

  wire::Arena& arena() { return *arena_; }
  uint64_t layout_offset() const { return layout_offset_; }
  wire::JobLayout& layout() {
    return *arena_->At<wire::JobLayout>(layout_offset_);
  }
  wire::UnitLayout& unit(uint32_t unit) {
    return arena_->At<wire::UnitLayout>(layout().units_offset, 2)[unit];
  }
  // Compute weights.
  wire::BufferRef weights(uint32_t number) {
    const wire::UnitLayout& u = unit(number);
    return {u.compute_offset, u.element_count * DTypeBytes(u.dtype)};
  }
  wire::ParameterLayout& parameter(uint32_t index) {
    return arena_->At<wire::ParameterLayout>(layout().parameters_offset,
                                             4)[index];
  }

  // 64-byte aligned, zero.
  wire::BufferRef Allocate(uint64_t bytes);
  uint64_t AllocateWord() { return Allocate(sizeof(wire::Word)).offset; }
  // Magnitudes differ widely, so that the order of addition shows.
  float RandomValue();
  wire::BufferRef RandomValues(DType dtype, uint64_t count);
  // A third of those below `end`, or of all; every fifth or so padding.
  wire::BufferRef RandomTokens(uint64_t count, int64_t end = 0);
  uint64_t Random();

  float* Fp32(uint64_t offset, uint64_t count) {
    return arena_->At<float>(offset, count);
  }
  std::string Bytes(const wire::BufferRef& buffer) const;
  // Remembers the arena's content, and brings it back.
  void Save();
  void Restore() { RestoreFrom(*this); }
  // REQUIRES: `saved` has the same options.
  void RestoreFrom(const TestJob& saved);
  // Every tensor and norm partial that the units have, and the version words.
  std::string State();

 private:
  void LayOutUnit(uint32_t unit, const std::vector<uint64_t>& parameters);

  const TestJobOptions options_;
  std::unique_ptr<wire::Arena> arena_;
  uint64_t next_;  // free from here
  uint64_t random_;
  uint64_t layout_offset_ = 0;
  std::string saved_;
};

// The daemon's side of one worker.
class TestDaemon {
 public:
  TestDaemon(wire::Channel& channel, wire::Arena& arena, int index)
      : channel_(channel), arena_(arena), index_(index) {}

  // Sends a command and rings; returns its attempt.
  absl::StatusOr<uint64_t> Send(wire::Body body);
  // The answer to `attempt`; drops Hello, Heartbeat and other attempts.
  absl::StatusOr<wire::Body> Answer(uint64_t attempt);
  // Both; a Failed becomes its status.
  absl::StatusOr<wire::Body> Call(wire::Body body);

 private:
  wire::Channel& channel_;
  wire::Arena& arena_;
  const int index_;
  uint64_t attempt_ = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_TEST_JOB_H_
