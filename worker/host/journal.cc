#include "worker/host/journal.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

using wire::ChunkState;
using wire::JournalEntry;

// Release: whoever sees the word sees what it stands for.  Acquire: nothing
// that follows (the copy into place, the slot's next use) happens before it.
void Write(std::atomic<uint64_t>& word, const JournalEntry& entry) {
  word.exchange(wire::PackJournal(entry), std::memory_order_acq_rel);
}

void Finish(const JobView& job, std::atomic<uint64_t>& word, uint64_t operation,
            uint32_t slot, uint32_t chunk, ChunkWork& work) {
  work.CopyIntoPlace(chunk, job.Scratch(slot));
  KillPoint("host.chunk.copied");
  Write(word, {operation, slot, ChunkState::kDone});
  KillPoint("host.chunk.done");
}

absl::StatusOr<std::vector<uint32_t>> FinishReadyChunks(const JobView& job,
                                                        uint32_t unit,
                                                        uint64_t operation,
                                                        ChunkWork& work) {
  std::atomic<uint64_t>* const words = job.Journal(unit);
  std::vector<uint32_t> left;
  for (uint32_t chunk = 0; chunk < job.unit(unit).chunk_count; ++chunk) {
    const JournalEntry entry =
        wire::UnpackJournal(words[chunk].load(std::memory_order_acquire));
    if (entry.operation != operation || entry.state == ChunkState::kNone) {
      left.push_back(chunk);
    } else if (entry.state == ChunkState::kReady) {
      if (entry.scratch_slot >= job.scratch_slot_count()) {
        return absl::DataLossError(absl::StrCat(
            "journal of unit ", unit, " chunk ", chunk, ": scratch slot ",
            entry.scratch_slot, " of ", job.scratch_slot_count()));
      }
      Finish(job, words[chunk], operation, entry.scratch_slot, chunk, work);
    }
  }
  return left;
}

}  // namespace

absl::Status RunJournalled(const JobView& job, uint32_t unit,
                           uint64_t operation, ChunkWork& work, ChunkPool& pool,
                           const std::function<void()>& beat) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> left,
                   FinishReadyChunks(job, unit, operation, work));
  std::atomic<uint64_t>* const words = job.Journal(unit);
  const auto one = [&](int thread, uint64_t index) -> absl::Status {
    const uint32_t chunk = left[index];
    const auto slot = static_cast<uint32_t>(thread);
    if (work.Unchanged(chunk)) {
      Write(words[chunk], {operation, slot, ChunkState::kDone});
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(work.Compute(thread, chunk, job.Scratch(slot)));
    KillPoint("host.chunk.computed");
    Write(words[chunk], {operation, slot, ChunkState::kReady});
    KillPoint("host.chunk.ready");
    Finish(job, words[chunk], operation, slot, chunk, work);
    return absl::OkStatus();
  };
  const int width =
      std::min(pool.threads(), static_cast<int>(job.scratch_slot_count()));
  return pool.Run(width, left.size(), one, beat);
}

}  // namespace roundhouse::worker
