// Moves the chunks of files that have not come over yet, several at a time, but
// none far ahead of those that it follows.
//
// One object for one try: it stops at the first error.  Run blocks, with
// threads of its own.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_CHUNK_RUN_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_CHUNK_RUN_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/mutex.h"

namespace roundhouse::client {

// Chunks on their way: less than the server lets a user have unfinished.
inline constexpr int kChunksAtOnce = 4;

struct Chunk {
  size_t file = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
};

// Moves one; OK: `there` is how much of the file has come over, from its
// beginning.  Called by several threads at once.
using MoveChunk = std::function<grpc::Status(const Chunk&, uint64_t* there)>;

class ChunkRun {
 public:
  // Sizes of all files, and how much of each is there.
  ChunkRun(std::vector<uint64_t> sizes, std::vector<uint64_t> there);
  ChunkRun(const ChunkRun&) = delete;
  ChunkRun& operator=(const ChunkRun&) = delete;

  // OK: all is there.  `moved` gets all bytes that are there now, from one
  // thread at a time.
  grpc::Status Run(const MoveChunk& move,
                   const std::function<void(uint64_t done)>& moved);
  // After Run: whether anything came over.
  bool has_moved() const { return has_moved_; }

 private:
  void MoveSome(const MoveChunk& move,
                const std::function<void(uint64_t done)>& moved);
  // Waits until one may be moved; none: there is no more, or an error.
  std::optional<Chunk> Next();

  const std::vector<uint64_t> sizes_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> there_ ABSL_GUARDED_BY(mutex_);
  size_t file_ ABSL_GUARDED_BY(mutex_) = 0;      // whose chunks are next
  uint64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;  // of the next one
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool has_moved_ = false;  // of the threads until Run returns
};

// Whether another try may mend what ended one: it broke on the way, or took too
// long.
bool CanMoveAgain(const grpc::Status& status);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_CHUNK_RUN_H_
