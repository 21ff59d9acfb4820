#include "worker/transfer/pinned_arena.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "base/log.h"

namespace roundhouse::worker {

PinnedArena::PinnedArena(Device& device, const wire::Arena& arena)
    : device_(device), arena_(arena) {
  if (arena_.header().piece_bytes == 0) return;
  wanted_bytes_ = KeptBytes();
  thread_ = std::thread([this] { Run(); });
}

PinnedArena::~PinnedArena() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

uint64_t PinnedArena::KeptBytes() const {
  return arena_.header().kept_bytes.load(std::memory_order_acquire);
}

void PinnedArena::Update() {
  const uint64_t kept = KeptBytes();
  if (kept == pinned_bytes_) return;
  {
    MutexLock lock(mutex_);
    if (wanted_bytes_ == kept) return;
    wanted_bytes_ = kept;
  }
  wake_.NotifyAll();
}

bool PinnedArena::PinNext() {
  const uint64_t from = pinned_bytes_;
  const uint64_t bytes =
      std::min(arena_.header().piece_bytes, arena_.size_bytes() - from);
  absl::StatusOr<std::unique_ptr<PinnedHost>> piece =
      device_.PinHost(arena_.At<std::byte>(from, bytes), bytes);
  if (!piece.ok()) {
    RH_LOG(kWarning) << "host memory beyond the first " << from
                     << " bytes is not pinned, its copies are slower: "
                     << piece.status().ToString();
    return false;
  }
  pieces_.push_back(*std::move(piece));
  pinned_bytes_ = from + bytes;
  return true;
}

bool PinnedArena::AwaitWanted() {
  MutexLock lock(mutex_);
  while (!stopping_ && pinned_bytes_ >= wanted_bytes_) wake_.Wait(mutex_);
  return !stopping_;
}

void PinnedArena::Run() {
  while (AwaitWanted() && PinNext()) {
  }
}

}  // namespace roundhouse::worker
