// Control messages between the daemon and its workers: fixed-layout, versioned,
// one datagram each on a Unix SOCK_SEQPACKET.  Tensors never cross it.
//
//   daemon -> device  ConfigureJob ReleaseJob RunSlot Withdraw Stop
//   daemon -> host    ConfigureJob ReleaseJob HostOp Stop
//   daemon -> files   FileOp Stop
//   worker -> daemon  Hello JobConfigured SlotStarted MicroBatchDone SlotDone
//                     Withdrawn HostOpDone FileOpDone Failed Heartbeat
//
// Every message carries an attempt: the number the daemon gave this execution
// of a command; it rises with every command to a worker, a replay has a new
// one, and an answer with an attempt the daemon does not wait for is dropped.
//
// Encode gives the datagram, Decode checks all of it (magic, version, counts
// against bytes, enums) and is fuzzed.  Times are CLOCK_MONOTONIC nanoseconds.
#ifndef ROUNDHOUSE_BASE_WIRE_MESSAGES_H_
#define ROUNDHOUSE_BASE_WIRE_MESSAGES_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/layout.h"

namespace roundhouse::wire {

inline constexpr uint64_t kMaxMessageBytes = 200 * 1000;
inline constexpr uint32_t kMaxTextBytes = 4096;
// At most this many entries in each array of a message.
inline constexpr uint32_t kMaxArray = 4096;

// --- commands ---

struct ConfigureJob {
  uint64_t job = 0;
  uint64_t layout_offset = 0;  // JobLayout
};

struct ReleaseJob {
  uint64_t job = 0;
};

struct Stop {};

// Asks for `withdrawn` or, when the slot has nothing left to give up, nothing:
// its SlotDone is the "too late".
struct Withdraw {
  uint64_t target_attempt = 0;
};

enum class SlotKind : uint32_t {
  kForward = 1,
  kFused = 2,
  kBackward = 3,
  kEvaluate = 4
};

enum class Recompute : uint32_t { kStage = 1, kLayer = 2 };

// A unit whose weights the slot reads, in the order its layers need them.
struct SlotUnit {
  uint32_t unit = 0;
  uint32_t layer = 0;  // the layer that needs it; L is the head
  BufferRef weights;   // in the arena, the unit's dtype
  WordRef version;     // uploaded once this is reached
};

// Buffers of one micro-batch.  Activations and their gradients are
// [rows, row_tokens, hidden] in the job's dtype; labels [rows, row_tokens]
// int32.
struct SlotMicroBatch {
  uint32_t index = 0;  // of the round
  uint32_t group = 0;  // of the round
  uint32_t rows = 0;
  uint32_t row_tokens = 0;
  uint32_t step_index = 0;  // of the step: part of the key of dropout masks
  uint32_t pad = 0;
  // [rows, row_tokens] int32: a token's position in its sequence, 0 where the
  // next sequence of a packed row begins.  bytes 0: one sequence a row.
  BufferRef positions;
  BufferRef labels;  // fused and evaluate slots
  BufferRef input;   // the stage's input
  WordRef input_ready;
  BufferRef gradient;  // backward: gradient of the stage's output
  WordRef gradient_ready;
};

// What leaves the device per micro-batch: the activation at `boundary` (the
// input of that layer), or the gradient of it.
struct SlotOutput {
  uint32_t micro_batch = 0;  // position in RunSlot::micro_batches
  uint32_t boundary = 0;
  uint32_t is_gradient = 0;
  uint32_t pad = 0;
  BufferRef buffer;
  WordRef raise;
};

// The sum of a subtree of groups of one unit's gradient, fp32, element_count
// of the unit; parameters at their offsets, padding zero.  Of trainable units
// only.
struct SlotContribution {
  uint32_t unit = 0;
  uint32_t first_group = 0;
  uint32_t group_count = 0;
  uint32_t pad = 0;
  BufferRef buffer;
};

struct RunSlot {
  uint64_t job = 0;
  uint64_t slot = 0;  // the daemon's number of it; the same in a replay
  uint64_t pass = 0;
  uint64_t step = 0;   // from 1; part of the key of dropout masks
  uint32_t train = 0;  // 1: of a training step; 0: an evaluation, no dropout
  SlotKind kind = SlotKind::kForward;
  Recompute recompute = Recompute::kStage;
  uint32_t first_layer = 0;
  uint32_t last_layer = 0;  // inclusive; L is the head
  uint32_t total_groups = 0;
  double loss_scale = 0;
  std::vector<SlotUnit> units;
  std::vector<SlotMicroBatch> micro_batches;
  std::vector<SlotOutput> outputs;
  std::vector<SlotContribution> contributions;
};

enum class HostOpKind : uint32_t { kGather = 1, kReduce = 2, kUpdate = 3 };

// One micro-batch whose embedding rows are gathered, or whose input gradient is
// added to the embedding's.  Tokens are [rows, row_tokens] int32; positions
// whose token is negative are padding: gathered as row 0, never added.
struct HostMicroBatch {
  uint32_t group = 0;
  uint32_t rows = 0;
  uint32_t row_tokens = 0;
  uint32_t pad = 0;
  BufferRef tokens;
  BufferRef data;  // gather: output; reduce: gradient; job's dtype
  WordRef word;    // gather: raised; reduce: reached already
};

struct HostContribution {
  uint32_t first_group = 0;
  uint32_t group_count = 0;
  BufferRef buffer;  // fp32
};

struct HostOp {
  uint64_t job = 0;
  uint64_t operation = 0;  // numbered per job, rising; the same in a replay
  HostOpKind kind = HostOpKind::kGather;
  uint32_t unit = 0;
  // reduce: value = (embedding use) + (contributions up the tree over
  // total_groups); then grad_sum = value, or grad_sum + value.
  uint32_t total_groups = 0;
  uint32_t add_to_sum = 0;
  uint32_t want_norm = 0;  // sum of squares of the final sum
  uint32_t pad = 0;
  WordRef version;  // gather: waits; update: raises when the unit is published
  // update: AdamW
  uint64_t step = 0;  // from 1; bias correction
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  float gradient_scale = 1;  // the clip factor
  uint32_t pad2 = 0;
  std::vector<HostMicroBatch> micro_batches;
  std::vector<HostContribution> contributions;
};

enum class FileOpKind : uint32_t { kLoad = 1, kInit = 2, kSave = 3 };

struct FileOp {
  uint64_t job = 0;
  uint64_t operation = 0;
  FileOpKind kind = FileOpKind::kLoad;
  uint32_t shard_count = 0;
  uint32_t tensor_count = 0;
  uint32_t pad = 0;
  uint64_t shards_offset = 0;   // FileShard[shard_count]; 0 for kInit
  uint64_t tensors_offset = 0;  // FileTensor[tensor_count]
  uint64_t seed = 0;
};

// --- events ---

struct Hello {
  uint32_t version = kWireVersion;
  uint32_t pid = 0;
  uint64_t device_memory_bytes = 0;
};

struct JobConfigured {
  uint64_t job = 0;
};

struct SlotStarted {
  uint64_t slot = 0;
  int64_t received_ns = 0;  // the command's receipt
  int64_t time_ns = 0;
};

struct MicroBatchDone {
  uint64_t slot = 0;
  uint32_t index = 0;
  uint32_t pad = 0;
  int64_t time_ns = 0;
};

enum class Direction : uint32_t { kH2D = 0, kD2H = 1 };
enum class Purpose : uint32_t {
  kWeights = 0,
  kGradients = 1,
  kActivations = 2,
  kOther = 3
};
inline constexpr int kDirections = 2;
inline constexpr int kPurposes = 4;

struct MicroBatchResult {
  double loss_sum = 0;
  uint64_t target_tokens = 0;
  uint32_t finite = 1;
  uint32_t pad = 0;
};

struct LayerTime {
  uint32_t layer = 0;
  uint32_t samples = 0;
  int64_t forward_ns = 0;   // mean; of a backward slot: recompute included
  int64_t backward_ns = 0;  // mean; 0 in forward slots
};

struct SlotDone {
  uint64_t slot = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;  // the event's own time
  int64_t wait_ns = 0;   // compute had nothing to do: inputs not there
  int64_t h2d_ns = 0;    // link busy
  int64_t compute_ns = 0;
  int64_t d2h_ns = 0;                      // link busy
  int64_t longest_activation_wait_ns = 0;  // behind bulk copies, any queue
  uint64_t bytes[kDirections][kPurposes] = {};
  uint64_t device_memory_peak_bytes = 0;
  std::vector<MicroBatchResult> results;  // fused and evaluate slots
  std::vector<LayerTime> layers;
};

struct Withdrawn {
  uint64_t slot = 0;
};

struct HostOpDone {
  uint64_t operation = 0;
  double norm_squared = 0;  // reduce with want_norm: chunks added in order
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
};

struct FileOpDone {
  uint64_t operation = 0;
  uint64_t bytes = 0;
};

// A command that could not be done; the worker goes on.  `code` is an
// absl::StatusCode.
struct Failed {
  uint64_t id = 0;  // slot or operation
  uint32_t code = 0;
  std::string text;
};

struct Heartbeat {
  int64_t time_ns = 0;
};

using Body = std::variant<ConfigureJob, ReleaseJob, Stop, Withdraw, RunSlot,
                          HostOp, FileOp, Hello, JobConfigured, SlotStarted,
                          MicroBatchDone, SlotDone, Withdrawn, HostOpDone,
                          FileOpDone, Failed, Heartbeat>;

struct Message {
  uint64_t attempt = 0;
  Body body;
};

// RESOURCE_EXHAUSTED when the datagram would exceed kMaxMessageBytes.
absl::StatusOr<std::string> Encode(const Message& message);

// INVALID_ARGUMENT naming what is wrong and where.
absl::StatusOr<Message> Decode(const std::string& datagram);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_MESSAGES_H_
