// The fixed tree of base/reduction.h as a stack program: push each node from
// left to right, and after it add the top of the stack to the one below it as
// often as told.
//
//   push node 0, merges[0] additions, push node 1, merges[1] additions, ...
//
// Immutable.
#ifndef ROUNDHOUSE_WORKER_HOST_TREE_PROGRAM_H_
#define ROUNDHOUSE_WORKER_HOST_TREE_PROGRAM_H_

#include <cstdint>
#include <vector>

namespace roundhouse::worker {

struct TreeProgram {
  std::vector<int> merges;  // per node
  int depth = 0;            // values on the stack at most

  // `leaves` per node, left to right, as TreeFold::Push takes them.
  static TreeProgram Make(const std::vector<int64_t>& leaves);
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_TREE_PROGRAM_H_
