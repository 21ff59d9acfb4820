// How many bytes a directory has on the disk.
//
// Blocking; thread-safe.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_TREE_BYTES_H_
#define ROUNDHOUSE_SERVER_REMOVAL_TREE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace roundhouse {

// Names that one count looks at.  Ours have some dozens.
inline constexpr size_t kMaxCountedNames = 100'000;
// Folders within each other.
inline constexpr int kMaxCountedDepth = 8;

struct TreeBytes {
  // A file with n names counts an n-th with each, so that no two counts have
  // the same bytes.
  int64_t shared = 0;
  // Each file in full.
  int64_t whole = 0;
  // Files that have no other name: what is free once the tree is gone.
  int64_t own = 0;
  // There are more names than are counted, or some that can't be looked at.
  bool partial = false;

  TreeBytes& operator+=(const TreeBytes& other);
};

// A file, or a folder and all that is in it; no link is followed.  Nothing
// where nothing is there.
TreeBytes CountTree(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_TREE_BYTES_H_
