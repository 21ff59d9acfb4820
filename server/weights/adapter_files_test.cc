#include "server/weights/adapter_files.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/model/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const AdapterConfig kAdapter = {
    .rank = 3, .alpha = 6.5, .dropout = 0.1, .targets = 0x41};

class AdapterFilesTest : public testing::Test {
 protected:
  AdapterFilesTest() : path_(testing::TempDir() + "/adapter_files_test") {
    fs::remove_all(path_);
    fs::create_directories(path_);
    WriteWeights(kAdapter);
    WriteConfig(Json::object());
  }
  ~AdapterFilesTest() override { fs::remove_all(path_); }

  // The tensors of `adapter`, zeros, with `rename` and `dtype` of the first.
  void WriteWeights(const AdapterConfig& adapter,
                    const std::string& rename = "",
                    FileDType dtype = FileDType::kF32) {
    std::vector<SafetensorsEntry> entries;
    for (int64_t layer = 0; layer < model_.layer_count; ++layer) {
      for (const auto& spec : AdapterUnit(model_, adapter, layer).parameters) {
        entries.push_back({spec.name, FileDType::kF32, spec.shape});
      }
    }
    entries[0].dtype = dtype;
    if (!rename.empty()) entries[0].name = rename;
    const auto prefix = BuildSafetensorsHeader(entries);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    WriteTestFile(
        path_ + "/adapter_model.safetensors",
        prefix->bytes +
            std::string(prefix->file_size - prefix->bytes.size(), '\0'));
  }
  // kAdapter's, with these fields changed.
  void WriteConfig(const Json& changes) {
    Json json = Json::parse(AdapterConfigJson(kAdapter, "models/base"));
    json.update(changes);
    WriteTestFile(path_ + "/adapter_config.json", json.dump());
  }
  void ExpectError(absl::StatusCode code, const std::string& text) {
    const auto status =
        OpenAdapterDirectory(AnyFiles(), path_, model_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), text))
        << "no \"" << text << "\" in " << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), path_));
  }

  const ModelConfig model_ = TestModel(false);
  const std::string path_;
};

// std::filesystem::exists threw at what stat refuses.
TEST_F(AdapterFilesTest, LoopsOfLinksAreNoFiles) {
  EXPECT_TRUE(IsAdapterDirectory(AnyFiles(), path_));
  fs::create_symlink("config.json", path_ + "/config.json");
  EXPECT_FALSE(IsAdapterDirectory(AnyFiles(), path_));
  fs::remove(path_ + "/adapter_config.json");
  fs::create_symlink("adapter_config.json", path_ + "/adapter_config.json");
  EXPECT_FALSE(OpenAdapterDirectory(AnyFiles(), path_, model_).ok());
  const std::string longest = "/" + std::string(5000, 'x');
  EXPECT_FALSE(OpenAdapterDirectory(AnyFiles(), longest, model_).ok());
  EXPECT_FALSE(IsAdapterDirectory(AnyFiles(), longest));
}

TEST_F(AdapterFilesTest, WhatIsWrittenIsRead) {
  const auto adapter = OpenAdapterDirectory(AnyFiles(), path_, model_);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ(adapter->config, kAdapter);
  EXPECT_EQ(adapter->base_model, "models/base");
  EXPECT_EQ(adapter->path, path_);
  ASSERT_EQ(adapter->sources.size(), 3u);
  std::set<uint64_t> offsets;
  for (int64_t layer = 0; layer < 3; ++layer) {
    const UnitSpec unit = AdapterUnit(model_, kAdapter, layer);
    ASSERT_EQ(adapter->sources[layer].size(), 4u);
    for (size_t p = 0; p < 4; ++p) {
      const ParameterSource& source = adapter->sources[layer][p];
      EXPECT_EQ(source.file.path, path_ + "/adapter_model.safetensors");
      EXPECT_EQ(source.file.identity.size_bytes,
                fs::file_size(source.file.path));
      EXPECT_EQ(static_cast<int64_t>(source.bytes),
                4 * unit.parameters[p].element_count);
      offsets.insert(source.offset);
    }
  }
  EXPECT_EQ(offsets.size(), 12u);
}

TEST_F(AdapterFilesTest, AWholeAlphaIsAnInteger) {
  AdapterConfig whole = kAdapter;
  whole.alpha = 16;
  EXPECT_TRUE(
      absl::StrContains(AdapterConfigJson(whole, "b"), "\"lora_alpha\": 16,"));
}

TEST_F(AdapterFilesTest, PeftsOwnSpellingsAreRead) {
  // As PEFT 0.18 writes a configuration, with its options off.
  WriteConfig(Json::parse(R"({"alpha_pattern": {}, "auto_mapping": null,
      "bias": "none", "corda_config": null, "eva_config": null,
      "exclude_modules": null, "fan_in_fan_out": false,
      "inference_mode": true, "init_lora_weights": true,
      "layer_replication": null, "layers_pattern": null,
      "layers_to_transform": null, "loftq_config": {}, "lora_bias": false,
      "megatron_config": null, "megatron_core": "megatron.core",
      "modules_to_save": null, "peft_version": "0.18.0",
      "qalora_group_size": 16, "rank_pattern": {}, "revision": null,
      "target_modules": ["mlp.down_proj", "q_proj"],
      "target_parameters": null, "trainable_token_indices": null,
      "use_dora": false, "use_qalora": false, "use_rslora": false})"));
  const auto adapter = OpenAdapterDirectory(AnyFiles(), path_, model_);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ(adapter->config.targets, 0x41u);
  AdapterConfig all = kAdapter;
  all.targets = kAllLinearTargets;
  WriteWeights(all);
  WriteConfig({{"target_modules", "all-linear"}, {"task_type", nullptr}});
  EXPECT_EQ(OpenAdapterDirectory(AnyFiles(), path_, model_)->config.targets,
            kAllLinearTargets);
}

TEST_F(AdapterFilesTest, OptionsThatAreNotSupportedAreRefusedByName) {
  const std::pair<Json, std::string> cases[] = {
      {{{"peft_type", "IA3"}}, "peft_type: \"IA3\" is not supported"},
      {{{"task_type", "SEQ_CLS"}}, "task_type: \"SEQ_CLS\" is not supported"},
      {{{"use_rslora", true}}, "use_rslora: true is not supported"},
      {{{"use_dora", true}}, "use_dora: true"},
      {{{"bias", "all"}}, "bias: \"all\" is not supported; \"none\" is"},
      {{{"modules_to_save", {"lm_head"}}}, "modules_to_save: [\"lm_head\"]"},
      {{{"rank_pattern", {{"q_proj", 4}}}}, "rank_pattern: {\"q_proj\":4}"},
      {{{"alpha_pattern", {{"q_proj", 4}}}}, "alpha_pattern"},
      {{{"layers_to_transform", {0, 1}}}, "layers_to_transform: [0,1]"},
      {{{"fan_in_fan_out", true}}, "fan_in_fan_out: true"},
      {{{"init_lora_weights", "pissa"}}, "init_lora_weights: \"pissa\""},
      {{{"an_option_of_tomorrow", 1}}, "an_option_of_tomorrow: 1"},
      {{{"target_modules", ".*_proj"}}, "regular expression"},
      {{{"target_modules", {"q_proj", "lm_head"}}},
       "target_modules: \"lm_head\" is not supported"},
  };
  for (const auto& [change, text] : cases) {
    WriteConfig(change);
    ExpectError(absl::StatusCode::kUnimplemented, text);
  }
}

TEST_F(AdapterFilesTest, WrongFieldsSayWhatIsWrong) {
  const std::pair<Json, std::string> cases[] = {
      {{{"peft_type", nullptr}}, "peft_type: expected \"LORA\", got null"},
      {{{"r", 0}}, "r: expected an integer from 1 to 4096, got 0"},
      {{{"r", "8"}}, "r: expected an integer from 1 to 4096, got \"8\""},
      {{{"lora_alpha", 0}},
       "lora_alpha: expected a number above 0 to 1e+06, got 0"},
      {{{"lora_alpha", 1e300}}, "lora_alpha: expected a number above 0 to"},
      {{{"lora_alpha", "x"}}, "lora_alpha: expected a number, got \"x\""},
      {{{"lora_dropout", 1}}, "lora_dropout: expected a number from 0"},
      {{{"target_modules", nullptr}}, "target_modules: expected a list"},
      {{{"target_modules", Json::array()}}, "target_modules: expected a list"},
  };
  for (const auto& [change, text] : cases) {
    WriteConfig(change);
    ExpectError(absl::StatusCode::kInvalidArgument, text);
  }
  const std::string deep(100, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("\xff"),
        std::string("{\"r\": 1, \"r\": 2}"),
        "{\"rank_pattern\": " + deep + std::string(100, ']') + "}"}) {
    WriteTestFile(path_ + "/adapter_config.json", text);
    ExpectError(absl::StatusCode::kInvalidArgument, "adapter_config.json: ");
  }
  WriteTestFile(path_ + "/adapter_config.json", "[]");
  ExpectError(absl::StatusCode::kInvalidArgument, "not a JSON object");
  fs::remove(path_ + "/adapter_config.json");
  ExpectError(absl::StatusCode::kNotFound, "adapter_config.json");
}

TEST_F(AdapterFilesTest, WeightsOfAnotherAdapterAreRefused) {
  const std::string a =
      "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  WriteConfig({{"r", 4}});
  ExpectError(absl::StatusCode::kInvalidArgument,
              "tensor " + a + ": shape [3, 24] found, [4, 24] expected");
  WriteConfig({{"target_modules", {"q_proj", "k_proj"}}});
  ExpectError(absl::StatusCode::kInvalidArgument,
              "k_proj.lora_A.weight is missing");
  WriteConfig({{"target_modules", {"q_proj"}}});
  ExpectError(absl::StatusCode::kInvalidArgument, "6 tensors have no place");
  WriteConfig(Json::object());
  WriteWeights(kAdapter, "other");
  ExpectError(absl::StatusCode::kInvalidArgument, a + " is missing");
  WriteWeights(kAdapter, "", FileDType::kI32);
  ExpectError(absl::StatusCode::kUnimplemented,
              a + ": dtype I32 is not supported");
  fs::remove(path_ + "/adapter_model.safetensors");
  ExpectError(absl::StatusCode::kNotFound, "adapter_model.safetensors");
  WriteTestFile(path_ + "/adapter_model.bin", "x");
  ExpectError(absl::StatusCode::kNotFound, "adapter_model.bin is not read");
}

TEST_F(AdapterFilesTest, LfsPointersAreNamed) {
  for (const char* name :
       {"adapter_model.safetensors", "adapter_config.json"}) {
    WriteTestFile(absl::StrCat(path_, "/", name),
                  "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    ExpectError(absl::StatusCode::kInvalidArgument,
                absl::StrCat(name, ": is a Git LFS pointer"));
  }
}

TEST_F(AdapterFilesTest, AnotherModelsAdapterIsRefused) {
  const auto deeper =
      OpenAdapterDirectory(AnyFiles(), path_, TestModel(false, 4));
  EXPECT_TRUE(
      absl::StrContains(std::string(deeper.status().message()),
                        "layers.3.self_attn.q_proj.lora_A.weight is missing"))
      << deeper.status();
  const auto flatter =
      OpenAdapterDirectory(AnyFiles(), path_, TestModel(false, 2));
  EXPECT_TRUE(absl::StrContains(std::string(flatter.status().message()),
                                "4 tensors have no place"))
      << flatter.status();
}

TEST(SameBaseNameTest, ComparesTheLastPart) {
  EXPECT_TRUE(SameBaseName("Qwen/Qwen3-0.6B", "/data/models/Qwen3-0.6B"));
  EXPECT_TRUE(SameBaseName("models/a/", "a"));
  EXPECT_FALSE(SameBaseName("Qwen/Qwen3-0.6B", "/data/Qwen3-1.7B"));
  EXPECT_FALSE(SameBaseName("", "/data/Qwen3-1.7B"));
}

TEST(WithAdapterTest, TheJobMayOnlyRepeatWhatTheAdapterIs) {
  const AdapterDirectory adapter{.path = "p", .config = kAdapter};
  JobSpec spec;
  spec.method = TrainingMethod::kLora;
  auto full = WithAdapter(spec, adapter);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(ResolvedSpec::Resolve(*full, 1).adapter(), kAdapter);
  // Dropout is the job's own choice.
  spec.lora_dropout = 0;
  spec.lora_r = 3;
  EXPECT_EQ(WithAdapter(spec, adapter)->lora_dropout, 0);
  spec.lora_r = 4;
  auto status = WithAdapter(spec, adapter).status();
  EXPECT_EQ(ErrorField(status), "lora_r");
  EXPECT_EQ(std::string(status.message()),
            "lora_r: 4; the adapter in p, from which the job is to go on, has "
            "3");
  spec = JobSpec();
  spec.lora_alpha = 8;
  EXPECT_EQ(ErrorField(WithAdapter(spec, adapter).status()), "lora_alpha");
  spec = JobSpec();
  spec.target_modules = 1;
  status = WithAdapter(spec, adapter).status();
  EXPECT_EQ(ErrorField(status), "target_modules");
  EXPECT_TRUE(absl::StrContains(std::string(status.message()),
                                "target_modules: q_proj; the adapter"));
}

TEST(CheckAdapterIsTest, NamesWhatDiffers) {
  const AdapterDirectory adapter{.path = "p", .config = kAdapter};
  AdapterConfig wanted = kAdapter;
  wanted.dropout = 0;
  EXPECT_TRUE(CheckAdapterIs(wanted, adapter).ok());
  wanted.alpha = 7;
  EXPECT_EQ(std::string(CheckAdapterIs(wanted, adapter).message()),
            "p/adapter_config.json: lora_alpha: 6.5 found, 7 expected by the "
            "job");
  wanted = kAdapter;
  wanted.rank = 1;
  EXPECT_FALSE(CheckAdapterIs(wanted, adapter).ok());
  wanted = kAdapter;
  wanted.targets = 3;
  EXPECT_FALSE(CheckAdapterIs(wanted, adapter).ok());
}

}  // namespace
}  // namespace roundhouse
