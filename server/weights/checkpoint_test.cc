#include "server/weights/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "base/files/sealed_json.h"
#include "base/kill_point.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/weights/checkpoint_test_fixture.h"

namespace roundhouse {
namespace {

// The text of a manifest with these fields, sealed.
std::string Sealed(nlohmann::json manifest) {
  manifest.erase("manifest_sha256");
  return SealJson(manifest.dump());
}

TEST_F(CheckpointTest, AnFp16JobsLossScaleComesBack) {
  const std::string path = CheckpointPath(root_, 12);
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_FALSE(VerifyCheckpoint(AnyFiles(), path)->loss_scaler.has_value());
  const std::string file = path + "/checkpoint.json";
  auto bad = nlohmann::json::parse(ReadTestFile(file));
  bad["dtype"] = "fp16";
  WriteTestFile(file, Sealed(bad));
  ExpectCorrupt(path, "loss scaler");

  loss_scaler_ = LossScaler::State{0x1p30f, 1999, 12};
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_EQ(VerifyCheckpoint(AnyFiles(), path)->loss_scaler, loss_scaler_);
  const auto good = nlohmann::json::parse(ReadTestFile(file));
  for (const auto& [key, odd] :
       std::map<std::string, std::vector<nlohmann::json>>{
           {"scale", {0, 3, -2, 1e300, "x", nullptr}},
           {"growth_tracker", {-1, 2000, "x", nullptr}},
           {"skipped_steps", {-1, 13, "x", nullptr}}}) {
    for (const nlohmann::json& value : odd) {
      bad = good;
      bad["loss_scaler"][key] = value;
      WriteTestFile(file, Sealed(bad));
      ExpectCorrupt(path, "checkpoint.json");
    }
    bad = good;
    bad["loss_scaler"].erase(key);
    WriteTestFile(file, Sealed(bad));
    ExpectCorrupt(path, "checkpoint.json");
  }
}

TEST_F(CheckpointTest, ComesBackBitForBit) {
  const std::string path = CheckpointPath(root_, 12);
  const std::string before = State();
  ASSERT_TRUE(Save(path, 12).ok());
  EXPECT_FALSE(fs::exists(TemporaryName(path)));
  const auto manifest = VerifyCheckpoint(AnyFiles(), path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 12);
  EXPECT_EQ(manifest->seed, ~uint64_t{0});
  EXPECT_EQ(manifest->dtype, "bf16");
  EXPECT_EQ(manifest->dataset_sha256, "d5");
  EXPECT_EQ(manifest->resolved_spec, R"({"seed": 1})");
  EXPECT_EQ(manifest->tokens_trained, 1e15);
  EXPECT_EQ(manifest->shards.size(), 3u);  // config.json is one
  Scribble(2);
  ASSERT_NE(State(), before);
  const auto parts = ResumeParts(AnyFiles(), path, kStep, *state_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ReadShards(arena_->arena(), *parts);
  EXPECT_TRUE(State() == before);
}

// With an asynchronous optimizer both versions of the weights come back, each
// to where the next steps read it. A synchronous job's checkpoint has one.
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
    EXPECT_TRUE(CheckResumable(AnyFiles(), path, options.model, options.adapter,
                               DType::kBF16)
                    .ok());
    Scribble(6);
    const auto parts = ResumeParts(AnyFiles(), path, kStep, *state_);
    ASSERT_TRUE(parts.ok()) << parts.status();
    ReadShards(arena_->arena(), *parts);
    EXPECT_TRUE(State() == before);

    options.stale = false;
    state_ = MakeTestState(*arena_, options);
    ReadShards(arena_->arena(), *ResumeParts(AnyFiles(), path, kStep, *state_));
    ASSERT_TRUE(Save(path, kStep).ok());
    options.stale = true;
    state_ = MakeTestState(*arena_, options);
    ReadShards(arena_->arena(), *ResumeParts(AnyFiles(), path, kStep, *state_));
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
  const auto found = CheckResumable(AnyFiles(), path, options.model,
                                    options.adapter, DType::kBF16);
  ASSERT_TRUE(found.ok()) << found.status();
  Scribble(4);
  const auto parts = ResumeParts(AnyFiles(), path, kStep, *state_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ReadShards(arena_->arena(), *parts);
  EXPECT_TRUE(State() == before);
  // Neither a whole model nor other adapters go on from it.
  EXPECT_EQ(CheckResumable(AnyFiles(), path, options.model, {}, DType::kBF16)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  AdapterConfig fewer = options.adapter;
  fewer.targets = 1;
  const absl::Status more =
      CheckResumable(AnyFiles(), path, options.model, fewer, DType::kBF16)
          .status();
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
  EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), path).ok());
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
      EXPECT_FALSE(ReadCheckpoint(AnyFiles(), path).ok());
    }
    WriteTestFile(file, good + "x");
    EXPECT_FALSE(ReadCheckpoint(AnyFiles(), path).ok());
    fs::remove(file);
    ExpectCorrupt(path, std::string(name) + ": missing");
    EXPECT_FALSE(ResumeParts(AnyFiles(), path, kStep, *state_).ok());
    WriteTestFile(file, good);
  }
  EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), path).ok());
}

TEST_F(CheckpointTest, ADamagedManifestNeverCrashesNorPasses) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  const std::string file = path + "/checkpoint.json";
  const std::string good = ReadTestFile(file);
  auto json = nlohmann::json::parse(good);
  json.erase("manifest_sha256");
  for (const auto& [key, value] : json.items()) {
    for (const nlohmann::json& odd :
         {nlohmann::json(nullptr), nlohmann::json("x"),
          nlohmann::json::array({1}), nlohmann::json::object(),
          nlohmann::json::array()}) {
      if (value.is_string() && odd.is_string()) continue;
      auto bad = json;
      bad[key] = odd;
      WriteTestFile(file, Sealed(bad));
      ExpectCorrupt(path, "checkpoint.json");
    }
    auto bad = json;
    bad.erase(key);
    WriteTestFile(file, Sealed(bad));
    ExpectCorrupt(path, "checkpoint.json");
  }
  for (size_t size = 0; size + 2 < good.size(); size += 7) {
    WriteTestFile(file, good.substr(0, size));
    ExpectCorrupt(path, "checkpoint.json");
  }
  auto bad = json;
  bad["step"] = -1;
  WriteTestFile(file, Sealed(bad));
  ExpectCorrupt(path, "checkpoint.json");
  bad = json;
  bad["shards"][0]["file"] = "../elsewhere";
  WriteTestFile(file, Sealed(bad));
  ExpectCorrupt(path, "is no file name");
  for (const char* name :
       {"additional_chat_templates/../x.jinja", "other/x.jinja",
        "additional_chat_templates/x", "additional_chat_templates/.x.jinja",
        "additional_chat_templates/a/x.jinja", "additional_chat_templates/"}) {
    bad["shards"][0]["file"] = name;
    WriteTestFile(file, Sealed(bad));
    ExpectCorrupt(path, "is no file name");
  }
  fs::remove(file);
  ExpectCorrupt(path, "checkpoint.json");
}

TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefused) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  auto other =
      *TrainingState::Create(*arena_, TestStateOptions(true, DType::kF32));
  EXPECT_EQ(ResumeParts(AnyFiles(), path, kStep, *other).status().code(),
            absl::StatusCode::kDataLoss);
  TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
  options.model.intermediate_size += 4;
  other = *TrainingState::Create(*arena_, options);
  const absl::Status status =
      ResumeParts(AnyFiles(), path, kStep, *other).status();
  EXPECT_NE(std::string(status.message()).find("model.layers.0.mlp"),
            std::string::npos)
      << status;
}

TEST_F(CheckpointTest, AJobThatItDoesNotFitIsToldWhatDiffers) {
  const std::string path = CheckpointPath(root_, 4);
  ASSERT_TRUE(Save(path, 4).ok());
  const ModelConfig model = TestModel(true);
  const auto manifest =
      CheckResumable(AnyFiles(), path, model, {}, DType::kBF16);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 4);

  auto expect = [&](const ModelConfig& other, DType dtype,
                    const std::string& text) {
    const absl::Status status =
        CheckResumable(AnyFiles(), path, other, {}, dtype).status();
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
  EXPECT_EQ(
      CheckResumable(AnyFiles(), path, model, {}, DType::kBF16).status().code(),
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
  ReadShards(arena_->arena(), *ResumeParts(AnyFiles(), path, kStep, *state_));
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
      tokens_ = 3;
      if (replaces) {
        ASSERT_TRUE(Save(path, 3).ok());
      }
      const pid_t child = fork();
      if (child == 0) {
        if (!ArmKillPoint(point + ":1").ok()) _exit(2);
        tokens_ = 4;
        Save(path, 3).IgnoreError();
        _exit(3);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point;
      const auto manifest = VerifyCheckpoint(AnyFiles(), path);
      if (!saved && !replaces) {
        EXPECT_FALSE(fs::exists(path)) << point;
      } else {
        ASSERT_TRUE(manifest.ok()) << point << ": " << manifest.status();
        EXPECT_EQ(manifest->tokens_trained, saved ? 4 : 3) << point;
      }
      // What was left does not disturb the next save.
      tokens_ = 5;
      ASSERT_TRUE(Save(path, 3).ok());
      EXPECT_EQ(VerifyCheckpoint(AnyFiles(), path)->tokens_trained, 5);
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
    EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), path + ".corrupt").ok());
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
  EXPECT_EQ(VerifyCheckpoint(AnyFiles(), path)->step, 3);
}

TEST_F(CheckpointTest, ChatTemplatesKeepTheirFolder) {
  const std::string source = root_ + "/from/additional_chat_templates";
  fs::create_directories(source);
  WriteTestFile(source + "/tool_use.jinja", "text");
  const std::string path = CheckpointPath(root_, 1);
  copied_files_ = {source + "/tool_use.jinja"};
  ASSERT_TRUE(Save(path, 1).ok());
  const std::string copied = path + "/additional_chat_templates/tool_use.jinja";
  EXPECT_EQ(ReadTestFile(copied), "text");
  EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), path).ok());
  WriteTestFile(copied, "texT");
  ExpectCorrupt(path, "tool_use.jinja");
}

TEST_F(CheckpointTest, EveryFileIsHashedAndOthersAreNotRead) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  WriteTestFile(path + "/README", "mine");
  const auto manifest = VerifyCheckpoint(AnyFiles(), path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(*CheckpointText(AnyFiles(), path, *manifest, "config.json"), "{}");
  EXPECT_EQ(*CheckpointText(AnyFiles(), path, *manifest, "README"), "");
  WriteTestFile(path + "/config.json", "{ ");
  ExpectCorrupt(path, "config.json: its SHA-256");
  EXPECT_TRUE(absl::IsDataLoss(
      CheckpointText(AnyFiles(), path, *manifest, "config.json").status()));
  fs::remove(path + "/config.json");
  ExpectCorrupt(path, "config.json: missing");
}

TEST_F(CheckpointTest, EveryBitOfTheManifestCounts) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  const std::string file = path + "/checkpoint.json";
  const std::string good = ReadTestFile(file);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    WriteTestFile(file, bad);
    ASSERT_FALSE(ReadCheckpoint(AnyFiles(), path).ok()) << "byte " << at;
  }
}

TEST_F(CheckpointTest, TheStepIsTheDirectorys) {
  ASSERT_TRUE(Save(CheckpointPath(root_, 46), 46).ok());
  fs::rename(CheckpointPath(root_, 46), CheckpointPath(root_, 45));
  ExpectCorrupt(CheckpointPath(root_, 45),
                "is of step 46, its directory of 45");
  // A copy under a name of its own says its step itself.
  fs::rename(CheckpointPath(root_, 45), root_ + "/mine");
  EXPECT_EQ(VerifyCheckpoint(AnyFiles(), root_ + "/mine")->step, 46);
  EXPECT_EQ(CheckpointStepOf("a/checkpoint-7"), 7);
  for (const char* name : {"checkpoint-07", "checkpoint- 7", "checkpoint-7x",
                           "checkpoint-", "tmp-checkpoint-7"}) {
    EXPECT_FALSE(CheckpointStepOf(name).has_value()) << name;
  }
}

// Version 1 is the same without a seal and with tensors only.
TEST_F(CheckpointTest, OneOfTheVersionBeforeIsRead) {
  const std::string path = CheckpointPath(root_, 1);
  ASSERT_TRUE(Save(path, 1).ok());
  const std::string file = path + "/checkpoint.json";
  auto json = nlohmann::json::parse(ReadTestFile(file));
  json.erase("manifest_sha256");
  WriteTestFile(file, json.dump(2) + "\n");
  ExpectCorrupt(path, "does not begin with its SHA-256");
  json["format_version"] = 1;
  json["shards"].erase(2);
  WriteTestFile(file, json.dump(2) + "\n");
  const auto manifest = VerifyCheckpoint(AnyFiles(), path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->shards.size(), 2u);
  EXPECT_EQ(*CheckpointText(AnyFiles(), path, *manifest, "config.json"), "{}");
  EXPECT_EQ(*CheckpointText(AnyFiles(), path, *manifest, "samples.jsonl"), "");
}

TEST_F(CheckpointTest, OnesAfterTheNewestNeitherCountNorGo) {
  for (const int64_t step : {10, 15, 30}) {
    ASSERT_TRUE(Save(CheckpointPath(root_, step), step).ok());
  }
  EXPECT_TRUE(RemoveOldCheckpoints(root_, 1, std::nullopt, 15).ok());
  EXPECT_EQ(ListCheckpointSteps(root_), (std::vector<int64_t>{15, 30}));
}

TEST_F(CheckpointTest, AFolderThatCannotBeListedIsNotAnEmptyOne) {
  EXPECT_TRUE(FindCheckpointSteps(root_ + "/nowhere")->empty());
  WriteTestFile(root_ + "/file", "");
  EXPECT_TRUE(absl::IsInternal(FindCheckpointSteps(root_ + "/file").status()));
}

TEST_F(CheckpointTest, NoneIsRemovedBesideANewestThatIsNotGood) {
  for (const int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(Save(CheckpointPath(root_, step), step).ok());
  }
  WriteTestFile(CheckpointPath(root_, 3) + "/config.json", "[]");
  const absl::Status status = RemoveOldCheckpoints(root_, 1);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(ListCheckpointSteps(root_), (std::vector<int64_t>{1, 2, 3}));
}

// Each call of a save and of a quarantine that can fail, in turn.
TEST_F(CheckpointTest, AFullOrFailingDiskLeavesTheOldOne) {
  const std::string path = CheckpointPath(root_, 3);
  ASSERT_TRUE(Save(path, 3).ok());
  for (const char* site : {"checkpoint.folder", "checkpoint.text",
                           "checkpoint.manifest", "checkpoint.rename"}) {
    for (const char* kind : {"ENOSPC", "EIO"}) {
      absl::Status status = absl::UnknownError("not yet");
      for (int after = 0; !status.ok(); ++after) {
        ASSERT_LT(after, 50);
        tokens_ = after;
        ASSERT_TRUE(
            ArmFileFaults(absl::StrCat(site, ":", kind, ":1:", after)).ok());
        status = Save(path, 3);
        ASSERT_TRUE(ArmFileFaults("").ok());
        EXPECT_TRUE(status.ok() || absl::IsInternal(status) ||
                    absl::IsResourceExhausted(status))
            << status;
        AbandonDirectory(PlanOf(path));
        EXPECT_TRUE(VerifyCheckpoint(AnyFiles(), path).ok());
        EXPECT_FALSE(fs::exists(TemporaryName(path)));
      }
      EXPECT_EQ(VerifyCheckpoint(AnyFiles(), path)->tokens_trained, tokens_);
    }
  }
}

// Power fails at every sync and rename of a save in turn.
TEST_F(CheckpointTest, AFailureOfPowerLeavesTheOldOrTheNew) {
  const std::string path = CheckpointPath(root_, 3);
  for (const char* site :
       {"checkpoint.text", "checkpoint.manifest", "checkpoint.rename"}) {
    bool died = true;
    for (int after = 0; died; ++after) {
      ASSERT_LT(after, 50);
      tokens_ = 1;
      ASSERT_TRUE(Save(path, 3).ok());
      const pid_t child = fork();
      if (child == 0) {
        tokens_ = 2;
        if (!ArmFileFaults(absl::StrCat(site, ":lost:1:", after)).ok() ||
            !Save(path, 3).ok()) {
          _exit(2);
        }
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      died = WIFSIGNALED(status);
      const auto manifest = VerifyCheckpoint(AnyFiles(), path);
      ASSERT_TRUE(manifest.ok()) << site << after << manifest.status();
      EXPECT_EQ(manifest->tokens_trained, died ? 1 : 2) << site << after;
    }
  }
}

}  // namespace
}  // namespace roundhouse
