// Whatever the bytes: the header's and the index's parser answer.  An accepted
// header's tensors tile the data and survive being written again; an accepted
// index names files of its own directory only.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"

namespace roundhouse {
namespace {

constexpr uint64_t kDataBytes = 80;  // what the seed inputs' tensors take

using NamedTensor = std::pair<std::string, SafetensorsTensor>;

void CheckHeader(const SafetensorsHeader& header) {
  std::vector<NamedTensor> order(header.tensors.begin(), header.tensors.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) <
           std::pair(b.second.begin, b.second.end);
  });
  uint64_t end = header.data_begin;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : order) {
    ROUNDHOUSE_CHECK(tensor.begin == end) << name;
    ROUNDHOUSE_CHECK(TensorBytes(tensor.dtype, tensor.shape) ==
                     tensor.end - tensor.begin);
    end = tensor.end;
    entries.push_back({name, tensor.dtype, tensor.shape});
  }
  ROUNDHOUSE_CHECK(end == header.file_size);
  const auto prefix = BuildSafetensorsHeader(entries, header.metadata);
  ROUNDHOUSE_CHECK(prefix.ok()) << prefix.status();
  const auto again = ParseSafetensorsHeader(prefix->bytes.substr(8),
                                            prefix->file_size, "again");
  ROUNDHOUSE_CHECK(again.ok()) << again.status();
  ROUNDHOUSE_CHECK(again->tensors.size() == header.tensors.size());
}

void CheckIndex(const std::string& json) {
  const auto index = ParseSafetensorsIndex(json, "index");
  if (!index.ok()) return;
  for (const auto& [tensor, file] : *index) {
    ROUNDHOUSE_CHECK(file.find('/') == std::string::npos) << file;
  }
}

}  // namespace
}  // namespace roundhouse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string json(reinterpret_cast<const char*>(data), size);
  const uint64_t file_size = 8 + size + roundhouse::kDataBytes;
  const auto header =
      roundhouse::ParseSafetensorsHeader(json, file_size, "file");
  if (header.ok()) roundhouse::CheckHeader(*header);
  roundhouse::CheckIndex(json);
  return 0;
}
