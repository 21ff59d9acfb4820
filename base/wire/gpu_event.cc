#include "base/wire/gpu_event.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roundhouse::wire {

std::string EncodeGpuEvent(const GpuEvent& event) {
  return absl::StrCat(event.uuid, " xid ", event.xid);
}

absl::StatusOr<GpuEvent> DecodeGpuEvent(absl::string_view line) {
  if (line.size() > kMaxGpuEventBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an event of a GPU has ", line.size(), " bytes"));
  }
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  const bool printable = std::all_of(
      line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
  GpuEvent event;
  // No sign, no leading zero: what Encode writes.
  if (!printable || words.size() != 3 || words[0].empty() ||
      words[1] != "xid" || !absl::SimpleAtoi(words[2], &event.xid) ||
      absl::StrCat(event.xid) != words[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("not an event of a GPU: ", printable ? line : "binary"));
  }
  event.uuid = std::string(words[0]);
  return event;
}

}  // namespace roundhouse::wire
