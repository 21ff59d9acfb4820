// Sets of CPUs and of NUMA nodes as the kernel writes them: "0-3,8,10-11".
#ifndef ROUNDHOUSE_BASE_CPU_LIST_H_
#define ROUNDHOUSE_BASE_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

inline constexpr int kMaxCpuNumber = 8191;
inline constexpr char kNumaNodes[] = "/sys/devices/system/node";

// Ascending; empty for a blank text.  INVALID_ARGUMENT: another form, numbers
// that do not rise or are beyond kMaxCpuNumber.
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);

// NOT_FOUND: there is no such file.
absl::StatusOr<std::vector<int>> ReadCpuList(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_CPU_LIST_H_
