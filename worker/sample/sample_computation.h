// The computation of one RunSample command on the compute thread: passes of
// tokens through the whole model, each sequence's next token drawn from its
// logits, until every sequence has its new tokens or has ended.
//
// First the tokens that the cache lacks, then one token of each sequence at a
// time.  All weights are uploaded once where there is memory for them, else
// layer by layer in every pass.  The embedding is never uploaded: its rows are
// gathered from the arena.
//
// Thread rule: the compute thread only.
#ifndef ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_COMPUTATION_H_
#define ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_COMPUTATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "worker/board/sample_cache.h"
#include "worker/board/sample_state.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/model/generation.h"
#include "worker/sample/sample_uploads.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// What a computation works with; everything outlives it.
struct SampleContext {
  SlotBoard& board;
  CopyQueue& uploads;
  Device& device;
  Stream& stream;
  const wire::Arena& arena;
  const GenerationFactory& make_generation;
};

class SampleComputation {
 public:
  // `cache` may hold what an earlier command of the sample left (Prune was
  // called), and gets what the next one can use.
  SampleComputation(const SampleContext& context, SampleState& sample,
                    SampleCache& cache);

  // FAILED_PRECONDITION: a unit's weights are not published, or a logit is not
  // finite (names sequence and position).  CANCELLED: the board stops.  Else
  // what the model or the device said.  After an error the cache is useless.
  absl::StatusOr<wire::SampleDone> Run();

 private:
  struct Sequence {
    uint32_t number = 0;
    uint32_t drawn_before = 0;  // by earlier commands
    bool ended = false;
    std::vector<int32_t> tokens;
    std::vector<int32_t> drawn;  // by this command; in `tokens` too
    SampleCache::Sequence* cache = nullptr;

    size_t new_tokens() const { return tokens.size() - cache->tokens.size(); }
  };
  using Pass = std::vector<Sequence*>;

  absl::StatusOr<wire::SampleDone> Draw();
  absl::Status MatchWeights();
  absl::Status PrepareSequences();
  absl::Status PrepareMemory();
  // Sequences that are to get a token, cut by kMaxPassTokens.
  std::vector<Pass> NextPasses();
  absl::Status RunPass(const Pass& pass);
  absl::Status SetInput(const Pass& pass);
  absl::Status RunLayers();
  absl::Status DrawTokens(const Pass& pass, const LayerWeights& head);
  absl::Status DrawToken(const float* logits, Sequence& sequence);
  size_t head_layer() const { return sample_.plan.layer_units.size() - 1; }

  const SampleContext& context_;
  SampleState& sample_;
  const wire::RunSample& command_;
  const JobTables& tables_;
  SampleCache& cache_;
  SampleUploads uploads_;
  std::unique_ptr<GenerationRun> run_;
  std::vector<Sequence> sequences_;
  std::unique_ptr<DeviceBuffer> rows_;  // of the largest pass
  std::vector<std::byte> gathered_;     // likewise, in host memory
  std::vector<float> logits_;           // of some sequences at a time
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SAMPLE_SAMPLE_COMPUTATION_H_
