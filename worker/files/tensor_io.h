// FileOp: tensors between files, or the generator of first weights, and the
// arena.  Every operation may be killed and sent again: a load or an init
// writes the same bytes, a save makes its files anew.
#ifndef ROUNDHOUSE_WORKER_FILES_TENSOR_IO_H_
#define ROUNDHOUSE_WORKER_FILES_TENSOR_IO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"

namespace roundhouse::worker {

// Does all of `op`.  Returns the bytes read from files, generated into the
// arena, or written to files.  Tensors, shards and paths as base/wire/layout.h
// has them; what lies outside a table is INVALID_ARGUMENT.
//   load  INVALID_ARGUMENT: a file's size differs from its shard's file_bytes
//   save  RESOURCE_EXHAUSTED: disk full; INTERNAL: other write errors; the
//         partial file is removed, files finished before stay
// A failed save or load is not undone: the operation as a whole is sent again
// or given up.
absl::StatusOr<uint64_t> DoFileOp(wire::Arena& arena, const wire::FileOp& op);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_FILES_TENSOR_IO_H_
