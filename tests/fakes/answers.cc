#include "tests/fakes/answers.h"

#include <cstdint>
#include <fstream>
#include <string>

#include "openssl/evp.h"

namespace roundhouse::fakes {

wire::SampleDone DoneSample(const wire::Arena& arena,
                            const wire::RunSample& sample) {
  constexpr int32_t kVocabulary = 50;
  wire::SampleDone done;
  done.sample = sample.sample;
  for (const wire::SampleSequence& sequence : sample.sequences) {
    const uint64_t count = sequence.tokens.bytes / sizeof(int32_t);
    int32_t last = arena.At<int32_t>(sequence.tokens.offset, count)[count - 1];
    uint32_t drawn = 0;
    bool ended = false;
    while (drawn < sample.new_tokens && !ended) {
      last = (last + 1) % kVocabulary;
      done.tokens.push_back(last);
      ++drawn;
      for (const int32_t end : sample.end_tokens) ended |= end == last;
    }
    done.counts.push_back(drawn);
  }
  return done;
}

namespace {

bool SaveShard(wire::Arena& arena, const wire::FileTensor* tensors,
               wire::FileShard& shard) {
  std::string bytes(arena.At<char>(shard.prefix_offset, shard.prefix_bytes),
                    shard.prefix_bytes);
  for (uint32_t i = 0; i < shard.tensor_count; ++i) {
    const wire::FileTensor& tensor = tensors[shard.first_tensor + i];
    const uint64_t size = tensor.element_count * DTypeBytes(tensor.file_dtype);
    bytes.append(arena.At<char>(tensor.first_offset, size), size);
  }
  EVP_Digest(bytes.data(), bytes.size(), shard.sha256, nullptr, EVP_sha256(),
             nullptr);
  const std::string path(arena.At<char>(shard.path_offset, shard.path_bytes),
                         shard.path_bytes);
  std::ofstream file(path, std::ios::binary);
  file << bytes << std::flush;
  return file.good();
}

}  // namespace

bool Save(wire::Arena& arena, const wire::FileOp& op) {
  if (op.kind != wire::FileOpKind::kSave) return true;
  auto* shards = arena.At<wire::FileShard>(op.shards_offset, op.shard_count);
  const auto* tensors =
      arena.At<wire::FileTensor>(op.tensors_offset, op.tensor_count);
  bool good = true;
  for (uint32_t i = 0; i < op.shard_count; ++i) {
    good &= SaveShard(arena, tensors, shards[i]);
  }
  return good;
}

bool Merge(const wire::MergeRows& rows) {
  std::fstream file(rows.output.path,
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(rows.output_offset));
  file << std::string(
              rows.row_count * rows.columns * DTypeBytes(rows.output_dtype),
              'm')
       << std::flush;
  return file.good();
}

}  // namespace roundhouse::fakes
