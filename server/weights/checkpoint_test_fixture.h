// What the tests of checkpoints share: a state with contents, saved and loaded
// on the test's own thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_TEST_FIXTURE_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_TEST_FIXTURE_H_

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "server/testing/test_model.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {

namespace fs = std::filesystem;

// Does on this thread what the files worker does with a save's table.
inline void WriteShards(const wire::Arena& arena, const wire::FileOp& op) {
  auto* shards = arena.At<wire::FileShard>(op.shards_offset, op.shard_count);
  const auto* tensors =
      arena.At<wire::FileTensor>(op.tensors_offset, op.tensor_count);
  for (uint32_t i = 0; i < op.shard_count; ++i) {
    wire::FileShard& shard = shards[i];
    const std::string path(arena.At<char>(shard.path_offset, shard.path_bytes),
                           shard.path_bytes);
    std::string bytes(arena.At<char>(shard.prefix_offset, shard.prefix_bytes),
                      shard.prefix_bytes);
    for (uint32_t t = 0; t < shard.tensor_count; ++t) {
      const wire::FileTensor& tensor = tensors[shard.first_tensor + t];
      ASSERT_EQ(tensor.file_offset, bytes.size());
      const uint64_t size =
          tensor.element_count * DTypeBytes(tensor.file_dtype);
      bytes.append(arena.At<char>(tensor.first_offset, size), size);
    }
    ASSERT_EQ(bytes.size(), shard.file_bytes);
    WriteTestFile(path, bytes);
    EVP_Digest(bytes.data(), bytes.size(), shard.sha256, nullptr, EVP_sha256(),
               nullptr);
  }
}

// And with a load's.
inline void ReadShards(const wire::Arena& arena,
                       const std::vector<FilePart>& parts) {
  for (const FilePart& part : parts) {
    const std::string bytes = ReadTestFile(part.path);
    ASSERT_EQ(bytes.size(), part.file_bytes);
    for (const wire::FileTensor& tensor : part.tensors) {
      ASSERT_EQ(tensor.file_dtype, tensor.first_dtype);
      const uint64_t size =
          tensor.element_count * DTypeBytes(tensor.file_dtype);
      ASSERT_LE(tensor.file_offset + size, bytes.size());
      std::memcpy(arena.At<char>(tensor.first_offset, size),
                  bytes.data() + tensor.file_offset, size);
    }
  }
}

// The checkpoints' number is odd, so that its weights are the second copy.
inline constexpr int64_t kStep = 3;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest()
      : root_(testing::TempDir() + "/checkpoint_test"),
        arena_(*HostArena::Create(64 << 20, 3)) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    state_ =
        *TrainingState::Create(*arena_, TestStateOptions(true, DType::kBF16));
    Scribble(1);
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  struct Tensor {
    uint64_t offset;
    uint64_t bytes;
  };
  // What a checkpoint keeps: compute weights, masters and both moments of every
  // parameter, without padding.
  std::vector<Tensor> Kept() const {
    std::vector<Tensor> kept;
    for (size_t unit = 0; unit < state_->units().size(); ++unit) {
      const int index = static_cast<int>(unit);
      if (!state_->trainable(index)) continue;
      const wire::UnitLayout& layout = state_->layout(index);
      const uint64_t size = DTypeBytes(state_->dtype(index));
      for (const ParameterSpec& spec : state_->units()[unit].parameters) {
        const auto first = static_cast<uint64_t>(spec.unit_offset_elements);
        const auto count = static_cast<uint64_t>(spec.element_count);
        kept.push_back({layout.compute_offset + first * size, count * size});
        if (state_->options().stale) {
          kept.push_back(
              {state_->Weights(index, 1).offset + first * size, count * size});
        }
        for (uint64_t base : {layout.master_offset, layout.exp_avg_offset,
                              layout.exp_avg_sq_offset}) {
          kept.push_back({base + first * 4, count * 4});
        }
      }
    }
    return kept;
  }
  void Scribble(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const Tensor& tensor : Kept()) {
      char* bytes = arena_->arena().At<char>(tensor.offset, tensor.bytes);
      for (uint64_t i = 0; i < tensor.bytes; ++i) {
        bytes[i] = static_cast<char>(random());
      }
    }
  }
  std::string State() const {
    std::string all;
    for (const Tensor& tensor : Kept()) {
      all.append(arena_->arena().At<char>(tensor.offset, tensor.bytes),
                 tensor.bytes);
    }
    return all;
  }

  DirectoryPlan PlanOf(const std::string& path) const {
    DirectoryPlan plan;
    plan.final_path = path;
    for (auto* files : {&TrainedFiles, &OptimizerFiles}) {
      auto set = files(SavedStateOf(*state_, kStep), TemporaryName(path));
      EXPECT_TRUE(set.ok()) << set.status();
      for (FilePart& part : set->parts) {
        plan.total_bytes += part.file_bytes;
        plan.parts.push_back(part);
      }
    }
    plan.texts = texts_;
    plan.copied_files = copied_files_;
    plan.sites = {kCheckpointFolder, kCheckpointText, kCheckpointRename,
                  kCheckpointRemove};
    return plan;
  }
  absl::Status Save(const std::string& path, int64_t step) {
    DirectoryPlan plan = PlanOf(path);
    absl::Status status = BeginDirectory(plan);
    if (!status.ok()) return status;
    const auto table =
        FileTable::Create(*arena_, wire::FileOpKind::kSave, plan.parts);
    EXPECT_TRUE(table.ok()) << table.status();
    WriteShards(arena_->arena(), (*table)->op());
    CheckpointManifest manifest;
    manifest.step = step;
    manifest.seed = ~uint64_t{0};
    manifest.dtype = loss_scaler_.has_value() ? "fp16" : "bf16";
    manifest.loss_scaler = loss_scaler_;
    manifest.dataset_sha256 = "d5";
    manifest.resolved_spec = R"({"seed": 1})";
    manifest.tokens_trained = tokens_;
    for (size_t i = 0; i < plan.parts.size(); ++i) {
      manifest.shards.push_back(
          {fs::path(plan.parts[i].path).filename().string(),
           plan.parts[i].file_bytes, (*table)->Sha256(static_cast<int>(i))});
    }
    plan.manifest = manifest;
    return FinishDirectory(plan);
  }
  void ExpectCorrupt(const std::string& path, const std::string& text) {
    const absl::Status status = VerifyCheckpoint(AnyFiles(), path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in " << status;
  }

  const std::string root_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
  std::optional<LossScaler::State> loss_scaler_;
  double tokens_ = 1e15;
  std::map<std::string, std::string> texts_ = {{"config.json", "{}"}};
  std::vector<std::string> copied_files_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_CHECKPOINT_TEST_FIXTURE_H_
