#include "client/transfer/chunk_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/upload_names.h"
#include "client/error_text.h"

namespace roundhouse::client {

ChunkRun::ChunkRun(std::vector<uint64_t> sizes, std::vector<uint64_t> there)
    : sizes_(std::move(sizes)), there_(std::move(there)) {
  MutexLock lock(mutex_);
  there_.resize(sizes_.size());
  for (const uint64_t bytes : there_) done_ += bytes;
  if (!there_.empty()) offset_ = there_[0];
}

std::optional<Chunk> ChunkRun::Next() {
  MutexLock lock(mutex_);
  while (status_.ok()) {
    while (file_ < sizes_.size() && offset_ >= sizes_[file_]) {
      if (++file_ < sizes_.size()) offset_ = there_[file_];
    }
    if (file_ == sizes_.size()) return std::nullopt;
    const uint64_t end = std::min(offset_ + kUploadChunkBytes, sizes_[file_]);
    if (end - std::min(end, there_[file_]) <= kUploadAheadBytes) {
      const Chunk chunk{file_, offset_, static_cast<size_t>(end - offset_)};
      offset_ = end;
      return chunk;
    }
    changed_.Wait(mutex_);
  }
  return std::nullopt;
}

void ChunkRun::MoveSome(const MoveChunk& move,
                        const std::function<void(uint64_t done)>& moved) {
  while (const std::optional<Chunk> chunk = Next()) {
    uint64_t now = 0;
    const grpc::Status status = move(*chunk, &now);
    MutexLock lock(mutex_);
    if (!status.ok()) {
      if (status_.ok()) status_ = status;
    } else {
      uint64_t& there = there_[chunk->file];
      now = std::min(now, sizes_[chunk->file]);
      done_ += now - std::min(now, there);
      there = std::max(there, now);
      has_moved_ = true;
      moved(done_);
    }
    changed_.NotifyAll();
  }
}

grpc::Status ChunkRun::Run(const MoveChunk& move,
                           const std::function<void(uint64_t done)>& moved) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kChunksAtOnce; ++i) {
    threads.emplace_back([&] { MoveSome(move, moved); });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(mutex_);
  if (!status_.ok()) return status_;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (there_[i] == sizes_[i]) continue;
    return grpc::Status(grpc::StatusCode::OUT_OF_RANGE,
                        absl::StrCat(there_[i], " of ", sizes_[i],
                                     " bytes of a file have come over"));
  }
  return grpc::Status::OK;
}

bool CanMoveAgain(const grpc::Status& status) {
  return BrokeOnTheWay(status) ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

}  // namespace roundhouse::client
