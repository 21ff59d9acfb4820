#include "worker/host/tree_program.h"

#include <algorithm>

#include "base/reduction.h"

namespace roundhouse::worker {

TreeProgram TreeProgram::Make(const std::vector<int64_t>& leaves) {
  TreeProgram program;
  TreeFold fold;
  int held = 0;
  for (size_t node = 0; node < leaves.size(); ++node) {
    int merges = static_cast<int>(
        fold.Push(static_cast<int>(node), leaves[node]).size());
    program.depth = std::max(program.depth, ++held);
    if (node + 1 == leaves.size()) {
      merges += static_cast<int>(fold.Finish().size());
    }
    program.merges.push_back(merges);
    held -= merges;
  }
  return program;
}

}  // namespace roundhouse::worker
