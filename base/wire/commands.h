// What the daemon asks of its workers (base/wire/messages.h).
#ifndef ROUNDHOUSE_BASE_WIRE_COMMANDS_H_
#define ROUNDHOUSE_BASE_WIRE_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/files/checked_file.h"
#include "base/wire/layout.h"
#include "base/wire/peer_commands.h"
#include "base/wire/wait_cause.h"
#include "base/work_kinds.h"

namespace roundhouse::wire {

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

// The slot's turn (RunSlot::turn) is another one now, if it has not begun; one
// of backfill stays so, and no other becomes one.  Is not answered.
struct SetTurn {
  uint64_t target_attempt = 0;
  uint64_t turn = 0;
};

// An evaluation has no dropout and no gradients.
enum class StepMode : uint32_t { kEvaluate = 0, kTrain = 1 };

enum class Recompute : uint32_t { kStage = 1, kLayer = 2 };

// A unit whose weights the slot reads, in the order its layers need them.
struct SlotUnit {
  uint32_t unit = 0;
  uint32_t layer = 0;  // the layer that needs it; L is the head
  BufferRef weights;   // in the arena, the unit's dtype
  WordRef version;     // uploaded once this is reached
};

// What a slot makes of SlotMicroBatch::picks, in its layers with experts.
enum class PickUse : uint32_t {
  kNone = 0,  // there are none: its routers pick
  // Its routers pick and it leaves that there, or goes by what an earlier
  // attempt left.
  kWrite = 1,
  kRead = 2,  // it goes by what another slot picked, once that is there
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
  // Which experts each token goes to (base/model: ExpertPick), of one layer
  // with experts after the other: [layers, rows, row_tokens,
  // experts_per_token].  The word of the first layer; each other's comes next.
  BufferRef picks;
  WordRef picked;
  // Where picks are written, with each layer's: how many tokens go to each
  // expert (base/model: ExpertLoad), [layers, experts].  0: nobody wants to
  // know.  Padding does not count: where tokens, [rows, row_tokens] int32, are
  // negative.
  uint64_t loads_offset = 0;
  uint64_t tokens_offset = 0;
};

enum class OutputKind : uint32_t { kActivation = 0, kGradient = 1 };

// What leaves the device per micro-batch: the activation at `boundary` (the
// input of that layer), or the gradient of it.
struct SlotOutput {
  uint32_t micro_batch = 0;  // position in RunSlot::micro_batches
  uint32_t boundary = 0;
  OutputKind kind = OutputKind::kActivation;
  uint32_t pad = 0;
  BufferRef buffer;
  WordRef raise;
};

// The sum of a subtree of groups of one unit's gradient, element_count of the
// unit in RunSlot::contribution_dtype, to which the fp32 sum is rounded once;
// parameters at their offsets, padding zero.  Of trainable units only.
struct SlotContribution {
  uint32_t unit = 0;
  uint32_t first_group = 0;
  uint32_t group_count = 0;
  uint32_t pad = 0;
  BufferRef buffer;
};

// Where the sums of a unit are when they are complete: they leave the device at
// once, or stay there (SumsHeld) until PeerSums says what becomes of them, or
// their memory is wanted.
enum class SumPlace : uint32_t { kHost = 0, kDevice = 1 };

struct RunSlot {
  uint64_t job = 0;
  uint64_t slot = 0;  // the daemon's number of it; the same in a replay
  uint64_t pass = 0;
  uint64_t step = 0;  // from 1; part of the key of dropout masks
  StepMode mode = StepMode::kEvaluate;
  SlotKind kind = SlotKind::kForward;
  Recompute recompute = Recompute::kStage;
  uint32_t first_layer = 0;
  uint32_t last_layer = 0;  // inclusive; L is the head
  uint32_t total_groups = 0;
  DType contribution_dtype = DType::kF32;  // or the job's
  SumPlace sums = SumPlace::kHost;
  double loss_scale = 0;
  // When slots of several jobs are ready, the device runs the one with the
  // lowest turn (base/turns.h).
  uint64_t turn = 0;
  // For the causes of bubbles: the event that made the slot possible,
  // CLOCK_MONOTONIC (0: none is known), and what was waited for until then.
  int64_t enabled_ns = 0;
  WaitCause enabled_by = WaitCause::kDispatch;
  bool trace = false;  // SlotDone tells each copy
  // An attempt of it did not end with Done or Failed.  Where it finds no memory
  // a worker that was asked the first time ends; another begins with all of the
  // device's, and is asked again.
  bool again = false;
  PickUse pick_use = PickUse::kNone;
  WordRef gather_begun;  // of the input's gather (HostOp::begun), if any
  std::vector<SlotUnit> units;
  std::vector<SlotMicroBatch> micro_batches;
  std::vector<SlotOutput> outputs;
  std::vector<SlotContribution> contributions;
};

// A sequence to be continued.
struct SampleSequence {
  uint32_t number = 0;         // of the sample; part of the key of its draws
  uint32_t prompt_tokens = 0;  // the first of `tokens`; draws count from here
  BufferRef tokens;            // int32: the prompt, then what was drawn so far
};

// Continues each sequence by `new_tokens` tokens, fewer where an end token
// comes, with the whole model on one device.  Bounded work: a sample is a row
// of these commands, each of which carries all tokens so far.  What a worker
// keeps between them (keys and values of `sample`) is a cache that only saves
// time.  Weights are those that the arena holds: nobody writes them meanwhile.
struct RunSample {
  uint64_t job = 0;     // whose layout says what the units are
  uint64_t sample = 0;  // the daemon's number of it; never reused
  uint32_t new_tokens = 0;
  uint32_t pad = 0;
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;
  std::vector<SlotUnit> units;  // all of the model's and adapters', by layer
  std::vector<SampleSequence> sequences;
  std::vector<int32_t> end_tokens;
};

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
  BufferRef buffer;  // HostOp::contribution_dtype
  // A slice: the sum of all groups of these elements of the unit.  0 elements:
  // of the whole unit.
  uint64_t first_element = 0;
  uint64_t elements = 0;
};

enum class SumWrite : uint32_t { kReplace = 0, kAdd = 1 };

struct HostOp {
  uint64_t job = 0;
  uint64_t operation = 0;  // numbered per job, rising; the same in a replay
  HostOpKind kind = HostOpKind::kGather;
  uint32_t unit = 0;
  // reduce: the contributions up the tree over total_groups, or their slices
  // side by side, are added to grad_sum, or become it (sum_write); then the
  // micro-batches' rows are added.  update: they are the gradient, in
  // grad_sum's place.
  uint32_t total_groups = 0;
  SumWrite sum_write = SumWrite::kReplace;
  bool want_norm = false;  // sum of squares of the final sum
  // reduce with kAdd: the norm partials are those of grad_sum, and hold where
  // this adds nothing.
  bool keep_partials = false;
  DType contribution_dtype = DType::kF32;  // widened as they are added
  // Compute weights of the whole unit: gather reads rows of them, update writes
  // them.
  BufferRef weights;
  WordRef version;  // gather: waits; update: raises when the unit is published
  WordRef begun;    // gather: raises once it has waited
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
  uint64_t operation = 0;  // rising; the same in a replay
  FileOpKind kind = FileOpKind::kLoad;
  uint32_t shard_count = 0;
  uint32_t tensor_count = 0;
  uint32_t pad = 0;
  uint64_t shards_offset = 0;   // FileShard[shard_count]; 0 for kInit
  uint64_t tensors_offset = 0;  // FileTensor[tensor_count]
  uint64_t seed = 0;
};

// A tensor in a file that is only read: row-major, dense.
struct FileMatrix {
  CheckedFile file;     // another one, or a changed one, is refused
  uint64_t offset = 0;  // of the first element, in bytes
  DType dtype = DType::kF32;
};

// Rows [first_row, first_row + row_count) of
//   output = base + scale * (B A)
// into a file that is there already; without a rank a copy of the base.
// Computed in fp32, rounded once.  Bounded work: an export is a row of these,
// so that a checkpoint is saved between two of them.
struct MergeRows {
  uint64_t operation = 0;  // of FileOp's numbers
  uint64_t first_row = 0;
  uint64_t row_count = 0;
  uint64_t columns = 0;
  uint64_t rank = 0;
  double scale = 0;
  FileMatrix base;    // [rows, columns]
  FileMatrix lora_a;  // [rank, columns]; unused without a rank, as the next
  FileMatrix lora_b;  // [rows, rank]
  // Its device and inode count; it grows meanwhile.
  CheckedFile output;
  uint64_t output_offset = 0;  // of first_row, in bytes
  DType output_dtype = DType::kF32;
  // The command ends when all that was written to the file so far, by this
  // command and by those before, is on the disk.
  bool sync = true;
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_COMMANDS_H_
