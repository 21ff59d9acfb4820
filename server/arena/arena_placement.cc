#include "server/arena/arena_placement.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace roundhouse {

bool HugePagesOnAdvice(const std::string& setting) {
  std::ifstream file(setting);
  std::string word;
  while (file >> word) {
    if (word == "[advise]") return true;
  }
  return false;
}

absl::Status SpreadOverNodes(std::byte* memory, uint64_t bytes,
                             const std::string& nodes) {
  const absl::StatusOr<std::vector<int>> with_memory =
      ReadCpuList(nodes + "/has_memory");
  if (absl::IsNotFound(with_memory.status())) return absl::OkStatus();
  RETURN_IF_ERROR(with_memory.status());
  if (with_memory->size() < 2) return absl::OkStatus();
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask((kMaxCpuNumber + 1) / kBits);
  for (const int node : *with_memory) {
    mask[static_cast<size_t>(node) / kBits] |=
        1ul << static_cast<size_t>(node) % kBits;
  }
  // The kernel reads one bit less than it is told.
  const auto highest = static_cast<unsigned long>(with_memory->back());
  if (syscall(SYS_mbind, memory, bytes, MPOL_INTERLEAVE, mask.data(),
              highest + 2, 0) != 0) {
    return absl::InternalError(absl::StrCat("mbind over nodes ",
                                            absl::StrJoin(*with_memory, ","),
                                            ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
