#include "server/weights/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/kill_point.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "openssl/evp.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// Does on this thread what the files worker does with a save's table.
void WriteShards(const wire::Arena& arena, const wire::FileOp& op) {
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
      const uint64_t size = tensor.element_count *
                            DTypeBytes(static_cast<DType>(tensor.file_dtype));
      bytes.append(arena.At<char>(tensor.first_offset, size), size);
    }
    ASSERT_EQ(bytes.size(), shard.file_bytes);
    WriteTestFile(path, bytes);
    EVP_Digest(bytes.data(), bytes.size(), shard.sha256, nullptr, EVP_sha256(),
               nullptr);
  }
}

// And with a load's.
void ReadShards(const wire::Arena& arena, const std::vector<FilePart>& parts) {
  for (const FilePart& part : parts) {
    const std::string bytes = ReadTestFile(part.path);
    ASSERT_EQ(bytes.size(), part.file_bytes);
    for (const wire::FileTensor& tensor : part.tensors) {
      ASSERT_EQ(tensor.file_dtype, tensor.first_dtype);
      const uint64_t size = tensor.element_count *
                            DTypeBytes(static_cast<DType>(tensor.file_dtype));
      ASSERT_LE(tensor.file_offset + size, bytes.size());
      std::memcpy(arena.At<char>(tensor.first_offset, size),
                  bytes.data() + tensor.file_offset, size);
    }
  }
}

// Of the checkpoints: odd, so that its weights are the second copy.
constexpr int64_t kStep = 3;

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
      auto set = files(*state_, kStep, TemporaryName(path));
      EXPECT_TRUE(set.ok()) << set.status();
      for (FilePart& part : set->parts) {
        plan.total_bytes += part.file_bytes;
        plan.parts.push_back(part);
      }
    }
    plan.texts["config.json"] = "{}";
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
    manifest.tokens_trained = 1e15;
    for (size_t i = 0; i < plan.parts.size(); ++i) {
      manifest.shards.push_back(
          {fs::path(plan.parts[i].path).filename().string(),
           plan.parts[i].file_bytes, (*table)->Sha256(static_cast<int>(i))});
    }
    plan.texts["checkpoint.json"] = ManifestJson(manifest);
    return FinishDirectory(plan);
  }
  void ExpectCorrupt(const std::string& path, const std::string& text) {
    const absl::Status status = ReadCheckpoint(path, true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in " << status;
  }

  const std::string root_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
  std::optional<LossScaler::State> loss_scaler_;
};

TEST_F(CheckpointTest, AnFp16JobsLossScaleComesBack) {
  const std::string path = CheckpointPath(root_, 12);
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_FALSE(ReadCheckpoint(path, true)->loss_scaler.has_value());
  const std::string file = path + "/checkpoint.json";
  auto bad = nlohmann::json::parse(ReadTestFile(file));
  bad["dtype"] = "fp16";
  WriteTestFile(file, bad.dump());
  ExpectCorrupt(path, "loss scaler");

  loss_scaler_ = LossScaler::State{0x1p30f, 1999, 12};
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_EQ(ReadCheckpoint(path, true)->loss_scaler, loss_scaler_);
  const auto good = nlohmann::json::parse(ReadTestFile(file));
  for (const auto& [key, odd] :
       std::map<std::string, std::vector<nlohmann::json>>{
           {"scale", {0, 3, -2, 1e300, "x", nullptr}},
           {"growth_tracker", {-1, 2000, "x", nullptr}},
           {"skipped_steps", {-1, 13, "x", nullptr}}}) {
    for (const nlohmann::json& value : odd) {
      bad = good;
      bad["loss_scaler"][key] = value;
      WriteTestFile(file, bad.dump());
      ExpectCorrupt(path, "checkpoint.json");
    }
    bad = good;
    bad["loss_scaler"].erase(key);
    WriteTestFile(file, bad.dump());
    ExpectCorrupt(path, "checkpoint.json");
  }
}

TEST_F(CheckpointTest, ComesBackBitForBit) {
  const std::string path = CheckpointPath(root_, 12);
  const std::string before = State();
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_FALSE(fs::exists(TemporaryName(path)));
  const auto manifest = ReadCheckpoint(path, true);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 12);
  EXPECT_EQ(manifest->seed, ~uint64_t{0});
  EXPECT_EQ(manifest->dtype, "bf16");
  EXPECT_EQ(manifest->dataset_sha256, "d5");
  EXPECT_EQ(manifest->resolved_spec, R"({"seed": 1})");
  EXPECT_EQ(manifest->tokens_trained, 1e15);
  EXPECT_EQ(manifest->shards.size(), 2u);
  Scribble(2);
  ASSERT_NE(State(), before);
  const auto parts = ResumeParts(path, kStep, *state_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ReadShards(arena_->arena(), *parts);
  EXPECT_TRUE(State() == before);
}

// Of an asynchronous optimizer both versions of the weights come back, each to
// where the next steps read it; a synchronous job's checkpoint has one.
TEST_F(CheckpointTest, BothVersionsOfWeightsComeBack) {
  for (const bool adapters : {false, true}) {
    TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
    if (adapters) options.adapter = TestAdapter();
    options.stale = true;
    state_ = MakeTestState(*arena_, options);
    Scribble(5);
    const std::string path = CheckpointPath(root_, kStep);
    const std::string before = State();
    ASSERT_TRUE(Save(path, kStep).ok());
    EXPECT_TRUE(
        CheckResumable(path, options.model, options.adapter, DType::kBF16)
            .ok());
    Scribble(6);
    const auto parts = ResumeParts(path, kStep, *state_);
    ASSERT_TRUE(parts.ok()) << parts.status();
    ReadShards(arena_->arena(), *parts);
    EXPECT_TRUE(State() == before);

    options.stale = false;
    state_ = MakeTestState(*arena_, options);
    ReadShards(arena_->arena(), *ResumeParts(path, kStep, *state_));
    ASSERT_TRUE(Save(path, kStep).ok());
    options.stale = true;
    state_ = MakeTestState(*arena_, options);
    ReadShards(arena_->arena(), *ResumeParts(path, kStep, *state_));
    for (size_t unit = 0; unit < state_->units().size(); ++unit) {
      const int index = static_cast<int>(unit);
      if (!state_->trainable(index)) continue;
      const wire::BufferRef one = state_->Weights(index, kStep);
      const wire::BufferRef other = state_->Weights(index, kStep - 1);
      ASSERT_NE(one.offset, other.offset);
      EXPECT_EQ(std::memcmp(arena_->arena().Bytes(one),
                            arena_->arena().Bytes(other), one.bytes),
                0);
    }
  }
}

TEST_F(CheckpointTest, AdaptersComeBackBitForBitWithoutTheirBase) {
  TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
  options.adapter = TestAdapter();
  state_ = MakeTestState(*arena_, options);
  Scribble(3);
  const std::string path = CheckpointPath(root_, 6);
  const std::string before = State();
  ASSERT_TRUE(Save(path, 6).ok());
  EXPECT_FALSE(fs::exists(path + "/model.safetensors"));
  const auto found =
      CheckResumable(path, options.model, options.adapter, DType::kBF16);
  ASSERT_TRUE(found.ok()) << found.status();
  Scribble(4);
  const auto parts = ResumeParts(path, kStep, *state_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ReadShards(arena_->arena(), *parts);
  EXPECT_TRUE(State() == before);
  // Neither a whole model nor other adapters go on from it.
  EXPECT_EQ(
      CheckResumable(path, options.model, {}, DType::kBF16).status().code(),
      absl::StatusCode::kInvalidArgument);
  AdapterConfig fewer = options.adapter;
  fewer.targets = 1;
  const absl::Status more =
      CheckResumable(path, options.model, fewer, DType::kBF16).status();
  EXPECT_NE(std::string(more.message()).find("is none of the job's model"),
            std::string::npos)
      << more;
}

TEST_F(CheckpointTest, EveryFlippedBitIsFound) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  std::mt19937_64 random(5);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string file = path + "/" + name;
    const std::string good = ReadTestFile(file);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      // The first and last byte, then anywhere.
      const size_t at = i == 0   ? 0
                        : i == 1 ? good.size() - 1
                                 : random() % good.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      WriteTestFile(file, bad);
      ExpectCorrupt(path, std::string(name) + ": its SHA-256");
    }
    WriteTestFile(file, good);
  }
  EXPECT_TRUE(ReadCheckpoint(path, true).ok());
}

TEST_F(CheckpointTest, TruncatedAndMissingShardsAreFoundWithoutHashing) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string file = path + "/" + name;
    const std::string good = ReadTestFile(file);
    for (const size_t size : {size_t{0}, size_t{1}, good.size() - 1}) {
      WriteTestFile(file, good.substr(0, size));
      ExpectCorrupt(path, std::to_string(size) + " bytes, " +
                              std::to_string(good.size()) + " bytes expected");
      EXPECT_FALSE(ReadCheckpoint(path, false).ok());
    }
    WriteTestFile(file, good + "x");
    EXPECT_FALSE(ReadCheckpoint(path, false).ok());
    fs::remove(file);
    ExpectCorrupt(path, std::string(name) + ": missing");
    EXPECT_FALSE(ResumeParts(path, kStep, *state_).ok());
    WriteTestFile(file, good);
  }
  EXPECT_TRUE(ReadCheckpoint(path, true).ok());
}

TEST_F(CheckpointTest, ADamagedManifestNeverCrashesNorPasses) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  const std::string file = path + "/checkpoint.json";
  const std::string good = ReadTestFile(file);
  const auto json = nlohmann::json::parse(good);
  for (const auto& [key, value] : json.items()) {
    for (const nlohmann::json& odd :
         {nlohmann::json(nullptr), nlohmann::json("x"),
          nlohmann::json::array({1}), nlohmann::json::object(),
          nlohmann::json::array()}) {
      if (value.is_string() && odd.is_string()) continue;
      auto bad = json;
      bad[key] = odd;
      WriteTestFile(file, bad.dump());
      ExpectCorrupt(path, "checkpoint.json");
    }
    auto bad = json;
    bad.erase(key);
    WriteTestFile(file, bad.dump());
    ExpectCorrupt(path, "checkpoint.json");
  }
  for (size_t size = 0; size + 2 < good.size(); size += 7) {
    WriteTestFile(file, good.substr(0, size));
    ExpectCorrupt(path, "checkpoint.json");
  }
  auto bad = json;
  bad["step"] = -1;
  WriteTestFile(file, bad.dump());
  ExpectCorrupt(path, "checkpoint.json");
  bad = json;
  bad["shards"][0]["file"] = "../elsewhere";
  WriteTestFile(file, bad.dump());
  ExpectCorrupt(path, "is no file name");
  fs::remove(file);
  ExpectCorrupt(path, "checkpoint.json");
}

TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefused) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  auto other =
      *TrainingState::Create(*arena_, TestStateOptions(true, DType::kF32));
  EXPECT_EQ(ResumeParts(path, kStep, *other).status().code(),
            absl::StatusCode::kDataLoss);
  TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
  options.model.intermediate_size += 4;
  other = *TrainingState::Create(*arena_, options);
  const absl::Status status = ResumeParts(path, kStep, *other).status();
  EXPECT_NE(std::string(status.message()).find("model.layers.0.mlp"),
            std::string::npos)
      << status;
}

TEST_F(CheckpointTest, AJobThatItDoesNotFitIsToldWhatDiffers) {
  const std::string path = CheckpointPath(root_, 4);
  ASSERT_TRUE(Save(path, 4).ok());
  const ModelConfig model = TestModel(true);
  const auto manifest = CheckResumable(path, model, {}, DType::kBF16);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 4);

  auto expect = [&](const ModelConfig& other, DType dtype,
                    const std::string& text) {
    const absl::Status status = CheckResumable(path, other, {}, dtype).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in " << status;
  };
  expect(model, DType::kF32, "its dtype is bf16, the job's is fp32");
  ModelConfig wider = model;
  wider.intermediate_size += 4;
  expect(wider, DType::kBF16,
         "tensor model.layers.0.mlp.gate_proj.weight: BF16 [36, 24] found, "
         "BF16 [40, 24] expected by the job");
  expect(TestModel(true, 4), DType::kBF16,
         "tensor model.layers.3.input_layernorm.weight is missing");
  expect(TestModel(true, 2), DType::kBF16,
         "tensor model.layers.2.input_layernorm.weight is none of the job's");
  expect(TestModel(false), DType::kBF16, "tensor lm_head.weight is missing");

  fs::remove(path + "/optimizer.safetensors");
  EXPECT_EQ(CheckResumable(path, model, {}, DType::kBF16).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, TheOldestAreRemoved) {
  for (int64_t step : {2, 10, 4}) {
    ASSERT_TRUE(Save(CheckpointPath(root_, step), step).ok());
  }
  EXPECT_TRUE(RemoveOldCheckpoints(root_, 3).ok());
  EXPECT_EQ(ListCheckpointSteps(root_), (std::vector<int64_t>{2, 4, 10}));
  EXPECT_TRUE(RemoveOldCheckpoints(root_, 1, 2).ok());
  EXPECT_EQ(ListCheckpointSteps(root_), (std::vector<int64_t>{2, 10}));
  EXPECT_TRUE(RemoveOldCheckpoints(root_, 1, 10).ok());
  EXPECT_EQ(ListCheckpointSteps(root_), std::vector<int64_t>{10});
}

TEST_F(CheckpointTest, ADirectoryOfThatNameIsReplacedAsAWhole) {
  const std::string path = CheckpointPath(root_, 3);
  ASSERT_TRUE(Save(path, 3).ok());
  WriteTestFile(path + "/left over", "x");
  Scribble(9);
  const std::string after = State();
  ASSERT_TRUE(Save(path, 3).ok());
  EXPECT_FALSE(fs::exists(path + "/left over"));
  EXPECT_FALSE(fs::exists(TemporaryName(path)));
  Scribble(10);
  ReadShards(arena_->arena(), *ResumeParts(path, kStep, *state_));
  EXPECT_TRUE(State() == after);
}

// A process dies at each point of the last steps: what is found under the name
// is whole, the old one before the rename, the new one after it.
TEST_F(CheckpointTest, DeathAtAnyStepLeavesTheOldOrTheNew) {
  const std::string path = CheckpointPath(root_, 3);
  const std::map<std::string, bool> points = {
      {"daemon.save.before_fsync", false},
      {"daemon.save.before_rename", false},
      {"daemon.save.after_rename", true}};
  for (const bool replaces : {false, true}) {
    for (const auto& [point, saved] : points) {
      fs::remove_all(path);
      if (replaces) {
        ASSERT_TRUE(Save(path, 3).ok());
      }
      const pid_t child = fork();
      if (child == 0) {
        if (!ArmKillPoint(point + ":1").ok()) _exit(2);
        Save(path, 4).IgnoreError();
        _exit(3);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point;
      const auto manifest = ReadCheckpoint(path, true);
      if (!saved && !replaces) {
        EXPECT_FALSE(fs::exists(path)) << point;
      } else {
        ASSERT_TRUE(manifest.ok()) << point << ": " << manifest.status();
        EXPECT_EQ(manifest->step, saved ? 4 : 3) << point;
      }
      // What was left does not disturb the next save.
      ASSERT_TRUE(Save(path, 5).ok());
      EXPECT_EQ(ReadCheckpoint(path, true)->step, 5);
      EXPECT_FALSE(fs::exists(TemporaryName(path)));
    }
  }
}

TEST_F(CheckpointTest, AnUnfinishedOneIsNotListed) {
  EXPECT_TRUE(ListCheckpointSteps(root_).empty());
  EXPECT_TRUE(ListCheckpointSteps(root_ + "/nowhere").empty());
  for (const int64_t step : {2, 10, 9}) {
    ASSERT_TRUE(Save(CheckpointPath(root_, step), step).ok());
  }
  ASSERT_TRUE(BeginDirectory(PlanOf(CheckpointPath(root_, 11))).ok());
  fs::create_directories(root_ + "/checkpoint-x");
  EXPECT_EQ(ListCheckpointSteps(root_), (std::vector<int64_t>{2, 9, 10}));
  AbandonDirectory(PlanOf(CheckpointPath(root_, 11)));
  EXPECT_FALSE(fs::exists(TemporaryName(CheckpointPath(root_, 11))));
}

TEST_F(CheckpointTest, AQuarantinedOneIsKeptAndNotListed) {
  const std::string path = CheckpointPath(root_, 2);
  for (int i = 0; i < 2; ++i) {  // the second replaces the first
    ASSERT_TRUE(Save(path, 2).ok());
    ASSERT_TRUE(QuarantineCheckpoint(path).ok());
    EXPECT_TRUE(ListCheckpointSteps(root_).empty());
    EXPECT_TRUE(ReadCheckpoint(path + ".corrupt", true).ok());
  }
  EXPECT_FALSE(QuarantineCheckpoint(path).ok());
}

TEST_F(CheckpointTest, MoreThanTheDiskHoldsIsRefusedWithTheBytes) {
  DirectoryPlan plan = PlanOf(CheckpointPath(root_, 1));
  plan.total_bytes = uint64_t{1} << 60;
  const absl::Status status = BeginDirectory(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find(std::to_string(1ull << 60)),
            std::string::npos)
      << status;
}

TEST_F(CheckpointTest, AFailureLeavesTheOldOneInPlace) {
  const std::string path = CheckpointPath(root_, 3);
  ASSERT_TRUE(Save(path, 3).ok());
  DirectoryPlan plan = PlanOf(path);
  plan.copied_files = {root_ + "/no such file"};
  ASSERT_TRUE(BeginDirectory(plan).ok());
  EXPECT_FALSE(FinishDirectory(plan).ok());
  AbandonDirectory(plan);
  EXPECT_EQ(ReadCheckpoint(path, true)->step, 3);
}

TEST_F(CheckpointTest, WriteFileAtomicallyReplacesTheWholeFile) {
  const std::string path = root_ + "/text";
  ASSERT_TRUE(WriteFileAtomically(path, "a longer text").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "short").ok());
  EXPECT_EQ(ReadTestFile(path), "short");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
  const absl::Status full = WriteFileAtomically("/dev/full/x", "y");
  EXPECT_FALSE(full.ok());
  EXPECT_FALSE(WriteFileAtomically(root_ + "/none/x", "y").ok());
}

}  // namespace
}  // namespace roundhouse
