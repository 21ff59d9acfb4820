#include "worker/host/gather.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "worker/host/embedding_rows.h"

namespace roundhouse::worker {
namespace {

// What one thread copies at a time.
constexpr uint64_t kBlockPositions = 256;

void CopyRows(const TokenBatch& batch, const std::byte* embedding,
              uint64_t row_bytes, uint64_t block) {
  const uint64_t begin = block * kBlockPositions;
  const uint64_t end = std::min(begin + kBlockPositions, batch.positions);
  for (uint64_t i = begin; i < end; ++i) {
    const auto row = static_cast<uint64_t>(std::max(batch.tokens[i], 0));
    std::memcpy(batch.data + i * row_bytes, embedding + row * row_bytes,
                row_bytes);
  }
}

}  // namespace

absl::Status Gather(wire::Arena& arena, const JobView& job,
                    const wire::HostOp& op, ChunkPool& pool,
                    const std::function<void()>& beat) {
  ASSIGN_OR_RETURN(const uint64_t first, job.EmbeddingElement(op.unit));
  const auto vocab = static_cast<uint64_t>(job.model().vocab_size);
  const auto hidden = static_cast<uint64_t>(job.model().hidden_size);
  const uint64_t row_bytes = hidden * DTypeBytes(job.dtype());
  ASSIGN_OR_RETURN(const std::byte* const weights,
                   job.Weights(op.unit, op.weights));
  const std::byte* const embedding = weights + first * DTypeBytes(job.dtype());
  for (size_t i = 0; i < op.micro_batches.size(); ++i) {
    const wire::HostMicroBatch& micro_batch = op.micro_batches[i];
    if (micro_batch.word.offset == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", i, ": no word to raise"));
    }
    wire::Word& word = arena.WordAt(micro_batch.word.offset);
    if (wire::Reached(word, micro_batch.word.value)) continue;
    ASSIGN_OR_RETURN(
        const TokenBatch batch,
        CheckTokenBatch(arena, micro_batch, i, vocab, hidden, job.dtype()));
    const uint64_t blocks =
        (batch.positions + kBlockPositions - 1) / kBlockPositions;
    const auto copy = [&](int, uint64_t block) {
      CopyRows(batch, embedding, row_bytes, block);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(pool.Run(pool.threads(), blocks, copy, beat));
    KillPoint("host.gather.copied");
    wire::Raise(word, micro_batch.word.value, arena.doorbells());
    KillPoint("host.gather.raised");
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
