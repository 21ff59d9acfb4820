// For tests: a small model's job in an arena of its own, the slots of one round
// over it, and a fleet of device workers in threads to run them.
#ifndef ROUNDHOUSE_WORKER_SLOT_TEST_JOB_H_
#define ROUNDHOUSE_WORKER_SLOT_TEST_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/reduction.h"
#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "base/wire/messages.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/device.h"
#include "worker/model/stage_run.h"
#include "worker/slot/slot_computation.h"
#include "worker/slot/slot_runner.h"

namespace roundhouse::worker {

// Inclusive layers of one stage.
struct Stage {
  uint32_t first = 0;
  uint32_t last = 0;
};

struct RoundShape {
  std::vector<Stage> forward;   // may be empty: all layers are fused
  std::vector<Stage> backward;  // the first is the fused one
  int micro_batches = 4;
  int groups = 2;
  // Contributions are of at most this many groups; a power of two.
  int largest_subtree = 1 << 20;
  DType dtype = DType::kF32;
  wire::Recompute recompute = wire::Recompute::kStage;
  bool tied = false;
  std::string name;
  AdapterConfig adapter = {};  // present: the model is frozen
  bool packed = false;         // rows of two sequences each
  DType contribution_dtype = DType::kF32;
  bool experts = false;  // in layers 0, 2 and 3
};

ModelConfig SmallConfig(int64_t layers, bool tied);
// One of four layers.
ModelConfig ConfigOf(const RoundShape& shape);

// The job of a round: weights, inputs and labels from `seed`.
class SlotTestJob {
 public:
  static constexpr uint64_t kJob = 9;
  static constexpr uint64_t kArenaBytes = 48 << 20;
  static constexpr uint32_t kRows = 2;
  static constexpr uint32_t kRowTokens = 6;
  static constexpr uint64_t kJobSeed = 0x123456789abcdef;  // of dropout
  static constexpr uint64_t kStep = 3;

  SlotTestJob(const ModelConfig& config, const RoundShape& shape,
              uint64_t seed);

  wire::Arena& arena() { return *arena_; }
  uint64_t layout_offset() const { return layout_offset_; }
  const ModelConfig& config() const { return config_; }
  const RoundShape& shape() const { return shape_; }
  const std::vector<UnitSpec>& units() const { return units_; }
  // fp32, of which the weights in the arena are roundings.
  const std::vector<float>& master(size_t unit) const { return masters_[unit]; }
  // [kRows, kRowTokens] each; the inputs are the tokens' embeddings.
  const int32_t* tokens(size_t micro_batch) const {
    return tokens_[micro_batch].data();
  }
  const int32_t* labels(size_t micro_batch) const {
    return arena_->At<int32_t>(labels_[micro_batch].offset, kRows * kRowTokens);
  }
  // Null unless the shape is packed.
  const int32_t* positions(size_t micro_batch) const;

  // In the arena, for a run over all layers.
  LayerWeights Weights(int64_t layer) const;

  // Every slot of a round in dispatch order; fresh buffers and words for it.
  // Slot numbers count from `first_slot`.
  std::vector<wire::RunSlot> MakeRound(uint64_t pass, uint64_t first_slot = 1);
  // Boundary 0 of the round made last: raises what the host would.
  void RaiseInputs();
  void RaiseInput(size_t micro_batch);
  void RaiseVersions();

  // A sample's command with all units, its sequences numbered from 0.  Of each
  // the first `prompt_tokens` are the prompt; 0: all are.
  wire::RunSample MakeSample(uint64_t sample,
                             const std::vector<std::vector<int32_t>>& sequences,
                             uint32_t new_tokens, uint32_t prompt_tokens = 0);

  // In the round made last, lets token t go to the experts from (t + shift)
  // modulo their number on, in every layer; and raises the words of picks.
  void FillPicks(int64_t shift);
  void RaisePicks(uint64_t value);
  // As SequentialBatch::picks has them, of the round made last.
  const ExpertPick* picks(size_t micro_batch) const {
    return arena_->At<ExpertPick>(
        picks_[micro_batch].buffer.offset,
        picks_[micro_batch].buffer.bytes / sizeof(ExpertPick));
  }

  wire::BufferRef Allocate(uint64_t bytes);
  std::string Bytes(const wire::BufferRef& buffer) const;
  uint64_t WordValue(const wire::WordRef& word) const;

  // The same round computed micro-batch by micro-batch with `make_run`, one run
  // for all layers: the bytes every output must have, and every unit's gradient
  // by micro-batch.
  struct Reference {
    std::map<std::pair<uint32_t, size_t>, std::string> activations;
    std::map<size_t, std::string> input_gradients;  // of boundary 0
    // [micro-batch][unit]
    std::vector<std::vector<std::vector<float>>> gradients;
    std::vector<HeadResult> results;
  };
  Reference ComputeReference(const StageRunFactory& make_run) const;
  // The bytes of a contribution: groups in order, up the tree, rounded.
  std::string ExpectedSum(const Reference& reference, uint32_t unit,
                          IndexRange groups) const;

  // Checks every output, contribution and result of a finished round.
  void CheckRound(const std::vector<wire::RunSlot>& slots,
                  const std::map<uint64_t, wire::SlotDone>& done,
                  const Reference& reference) const;

  // One by the round's target tokens.
  double loss_scale() const { return 1.0 / static_cast<double>(targets_); }

 private:
  struct Cell {
    wire::BufferRef buffer;
    wire::WordRef word;
  };

  void LayOut();
  void LayOutUnit(size_t unit, uint32_t first_parameter);
  void MakeMicroBatch();
  wire::BufferRef MakePositions();
  bool trainable(int unit) const {
    return IsTrainable(config_, shape_.adapter, unit);
  }
  DType DTypeOf(size_t unit) const {
    return UnitDType(config_, shape_.dtype, static_cast<int64_t>(unit));
  }
  Cell NewCell(uint64_t pass);
  Cell NewPicks(uint64_t pass);
  // One layer's units, as a slot's.
  std::vector<wire::SlotUnit> UnitsOf(uint32_t layer) const;
  wire::SlotUnit UnitOf(uint32_t unit, uint32_t layer) const;
  wire::RunSlot NewSlot(SlotKind kind, const Stage& stage, uint64_t pass);
  wire::RunSlot ForwardSlot(const Stage& stage, uint64_t pass);
  wire::RunSlot BackwardSlot(const Stage& stage, bool fused, uint64_t pass);
  void AddContributions(wire::RunSlot* slot);
  bool StartsBackwardStage(uint32_t boundary) const;
  uint64_t activation_bytes() const;
  std::vector<float> GroupSum(const Reference& reference, uint32_t unit,
                              int64_t group) const;
  std::vector<float> TreeSum(const Reference& reference, uint32_t unit,
                             IndexRange groups) const;

  const ModelConfig config_;
  const RoundShape shape_;
  const std::vector<UnitSpec> units_;
  std::unique_ptr<wire::Arena> arena_;
  uint64_t next_ = 0;
  uint64_t layout_offset_ = 0;
  uint64_t units_offset_ = 0;
  uint64_t parameters_offset_ = 0;
  uint64_t seed_;
  int64_t targets_ = 0;
  std::vector<std::vector<float>> masters_;   // by unit
  std::vector<std::vector<int32_t>> tokens_;  // by micro-batch
  std::vector<wire::BufferRef> inputs_;
  std::vector<wire::BufferRef> labels_;
  std::vector<wire::BufferRef> positions_;  // of no bytes unless packed
  // By (boundary, micro-batch), of the round made last.
  std::map<std::pair<uint32_t, size_t>, Cell> activations_;
  std::map<std::pair<uint32_t, size_t>, Cell> gradients_;
  std::vector<Cell> picks_;  // by micro-batch; empty without experts
};

// One device worker in a thread, and the daemon's end of its channel.
struct TestWorkerOptions {
  uint64_t device_memory_bytes = 64 << 20;
  std::function<std::unique_ptr<Device>(uint64_t memory_bytes)> make_device =
      NewCpuDevice;
  SlotRunnerOptions runner;
};

class TestWorker {
 public:
  TestWorker(SlotTestJob& job, int index, TestWorkerOptions options);
  ~TestWorker();  // Stop, and joins

  // Returns the attempt.
  uint64_t Send(wire::Body body);
  void Cancel(uint64_t attempt);  // the cancel word and the doorbell
  // The next event but Hello, Heartbeat; CHECK-fails when the channel is gone.
  wire::Message Next();
  // Drops events until a heartbeat says that so much is pinned.
  void AwaitPinned(uint64_t bytes);
  // The one that ends the attempt: SlotDone, SampleDone, Withdrawn or Failed.
  wire::Body End(uint64_t attempt);
  // Drops events until one of type T; returns it.
  template <typename T>
  T Await() {
    while (true) {
      wire::Message message = Next();
      if (auto* found = std::get_if<T>(&message.body)) return *found;
    }
  }
  Device& device() { return *device_; }
  // Every event received so far.
  const std::vector<wire::Message>& events() const { return events_; }

 private:
  SlotTestJob& job_;
  const int index_;
  std::unique_ptr<wire::Channel> daemon_;
  std::unique_ptr<wire::Channel> worker_;
  std::unique_ptr<Device> device_;
  std::thread thread_;
  uint64_t attempt_ = 0;
  std::vector<wire::Message> events_;
};

// Runs slots over `devices` workers, slot i on worker i mod devices, and gives
// every SlotDone by slot.
std::map<uint64_t, wire::SlotDone> RunSlots(
    std::vector<std::unique_ptr<TestWorker>>& workers,
    const std::vector<wire::RunSlot>& slots);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_TEST_JOB_H_
