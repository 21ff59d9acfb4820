// libFuzzer entry: whatever a prepared split's files hold, opening it says what
// is wrong or gives rows that can all be read.
//
// The input is a manifest, a zero byte, and the files' bytes one after the
// other, each as long as the manifest promises while there are any.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "nlohmann/json.hpp"
#include "server/dataset/dataset.h"

namespace {

using nlohmann::json;
constexpr int64_t kVocabSize = 256;

// One folder for all inputs of the process; in memory where that is possible,
// as each input rewrites every file.
const std::string& Folder() {
  static const auto& folder = *new std::string([] {
    const char* scratch = getenv("TEST_TMPDIR");
    if (access("/dev/shm", W_OK) == 0) scratch = "/dev/shm";
    std::string path = scratch != nullptr ? scratch : "/tmp";
    path += "/dataset_fuzz.XXXXXX";
    ROUNDHOUSE_CHECK(mkdtemp(path.data()) != nullptr) << path;
    std::atexit([] { std::filesystem::remove_all(Folder()); });
    return path;
  }());
  return folder;
}

// What the manifest promises, 0 where it is no manifest.
uint64_t Promised(const json& manifest, const char* key) {
  if (!manifest.is_object()) return 0;
  const auto found = manifest.find(key);
  return found != manifest.end() && found->is_number_unsigned()
             ? found->get<uint64_t>()
             : 0;
}

void Write(const char* name, const std::string& bytes) {
  std::ofstream file(Folder() + "/" + name, std::ios::binary);
  file << bytes;
  ROUNDHOUSE_CHECK(file.good()) << name;
}

void WriteSplit(const std::string& input) {
  const size_t zero = std::min(input.find('\0'), input.size());
  const json manifest = json::parse(input.substr(0, zero), nullptr, false);
  Write("manifest.json", input.substr(0, zero));
  size_t at = std::min(zero + 1, input.size());
  const auto take = [&](const char* name, uint64_t count, uint64_t size) {
    const uint64_t rest = input.size() - at;
    const uint64_t bytes = count <= rest / size ? count * size : rest;
    Write(name, input.substr(at, bytes));
    at += bytes;
  };
  const uint64_t tokens = Promised(manifest, "tokens");
  take("tokens.u32", tokens, sizeof(uint32_t));
  take("labels.u8", tokens, 1);
  take("offsets.u64", Promised(manifest, "sequences") + 1, sizeof(uint64_t));
  take("rows.u64", Promised(manifest, "packed_rows") + 1, sizeof(uint64_t));
}

int64_t ReadRow(const roundhouse::Dataset& dataset, int64_t row) {
  const int64_t length = dataset.RowTokens(row);
  ROUNDHOUSE_CHECK(length >= 1 && length <= dataset.counts().max_row_tokens);
  const int64_t padded = length + 2;
  std::vector<int32_t> tokens(padded), labels(padded), positions(padded);
  dataset.FillRow(row, padded, tokens.data(), labels.data(), positions.data());
  int64_t targets = 0;
  for (int64_t i = 0; i < padded; ++i) {
    ROUNDHOUSE_CHECK(tokens[i] < kVocabSize &&
                     (tokens[i] < 0) == (i >= length));
    if (labels[i] == roundhouse::kIgnoreLabel) continue;
    ++targets;
    ROUNDHOUSE_CHECK(labels[i] == tokens[i + 1]);
    ROUNDHOUSE_CHECK(positions[i + 1] == positions[i] + 1);
  }
  ROUNDHOUSE_CHECK(positions[0] == 0 && positions[length] == 0);
  ROUNDHOUSE_CHECK(targets == dataset.TargetTokens(row));
  return length;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  WriteSplit({reinterpret_cast<const char*>(data), size});
  const auto dataset = roundhouse::Dataset::Open(Folder(), kVocabSize);
  if (!dataset.ok()) {
    ROUNDHOUSE_CHECK(!dataset.status().message().empty());
    return 0;
  }
  int64_t tokens = 0;
  for (int64_t row = 0; row < (*dataset)->counts().rows; ++row) {
    tokens += ReadRow(**dataset, row);
  }
  ROUNDHOUSE_CHECK(tokens == (*dataset)->counts().tokens);
  return 0;
}
