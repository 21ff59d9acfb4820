#include "base/model/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/model/input_file.h"
#include "base/model/safetensors.h"
#include "base/model/safetensors_index.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kConfig[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12,
  "vocab_size": 10, "max_position_embeddings": 64,
  "tie_word_embeddings": true, "dtype": "float32"})";

class DirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    Write("config.json", kConfig);
    const auto config = ParseModelConfig(kConfig, "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    for (const UnitSpec& unit : ModelUnits(*config)) {
      for (const ParameterSpec& spec : unit.parameters) {
        entries_.push_back({spec.name, FileDType::kF32, spec.shape});
      }
    }
  }

  void TearDown() override { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

  // Tensor data is one letter of `fill` throughout.
  void WriteWeights(const std::string& name,
                    const std::vector<SafetensorsEntry>& entries,
                    char fill = 'w') {
    const auto prefix = BuildSafetensorsHeader(entries);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    Write(name,
          prefix->bytes +
              std::string(prefix->file_size - prefix->bytes.size(), fill));
  }

  void WriteTwoShards() {
    std::map<std::string, std::string> index;
    std::vector<SafetensorsEntry> shards[2];
    for (size_t i = 0; i < entries_.size(); ++i) {
      shards[i % 2].push_back(entries_[i]);
      index[entries_[i].name] = ShardFileName(i % 2, 2);
    }
    WriteWeights(ShardFileName(0, 2), shards[0]);
    WriteWeights(ShardFileName(1, 2), shards[1]);
    Write("model.safetensors.index.json", SafetensorsIndexJson(index, 0));
  }

  SafetensorsEntry& Entry(const std::string& name) {
    for (SafetensorsEntry& entry : entries_) {
      if (entry.name == name) return entry;
    }
    ADD_FAILURE() << name;
    return entries_[0];
  }

  void ExpectRefused(absl::StatusCode code,
                     const std::vector<std::string>& texts) {
    const absl::Status status = OpenModelDirectory(AnyFiles(), path_).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& text : texts) {
      EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
    }
  }

  std::string path_;
  std::vector<SafetensorsEntry> entries_;
};

TEST_F(DirectoryTest, ChatTemplatesByNameAreTokenizerFiles) {
  Write("tokenizer.json", "{}");
  const std::string folder = kChatTemplatesFolder;
  std::filesystem::create_directories(path_ + "/" + folder + "/sub.jinja");
  std::filesystem::remove(path_ + "/" + folder + "/sub.jinja");
  for (const char* name : {"b.jinja", "a.jinja", ".c.jinja", "notes.txt"}) {
    Write(folder + "/" + name, "text");
  }
  EXPECT_EQ(TokenizerFilesIn(AnyFiles(), path_),
            (std::vector<std::string>{"tokenizer.json", folder + "/a.jinja",
                                      folder + "/b.jinja"}));
  for (size_t i = 0; i < 2 * kMaxChatTemplates; ++i) {
    Write(absl::StrCat(folder, "/t", i, ".jinja"), "text");
  }
  EXPECT_EQ(TokenizerFilesIn(AnyFiles(), path_).size(),
            1 + kMaxChatTemplates + 1);
}

TEST(TokenizerFileTest, Names) {
  EXPECT_TRUE(IsTokenizerFile("tokenizer.json"));
  EXPECT_TRUE(IsTokenizerFile("additional_chat_templates/x.jinja"));
  for (const char* name :
       {"config.json", "additional_chat_templates", "x.jinja",
        "additional_chat_templates/x", "additional_chat_templates/.x.jinja",
        "additional_chat_templates/../x.jinja", "a/tokenizer.json"}) {
    EXPECT_FALSE(IsTokenizerFile(name)) << name;
  }
  EXPECT_EQ(TokenizerFileName("/m/merges.txt"), "merges.txt");
  EXPECT_EQ(TokenizerFileName("/m/additional_chat_templates/x.jinja"),
            "additional_chat_templates/x.jinja");
}

TEST_F(DirectoryTest, SingleFile) {
  entries_[3].dtype = FileDType::kBF16;
  WriteWeights("model.safetensors", entries_);
  Write("tokenizer.json", "{}");
  Write("chat_template.jinja", "");
  Write("README.md", "");
  const auto directory = OpenModelDirectory(AnyFiles(), path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->config.layer_count, 2);
  EXPECT_EQ(directory->config_json, kConfig);
  EXPECT_EQ(
      directory->tokenizer_files,
      (std::vector<std::string>{"tokenizer.json", "chat_template.jinja"}));
  const auto prefix = BuildSafetensorsHeader(entries_);
  ASSERT_TRUE(prefix.ok());
  const auto units = ModelUnits(directory->config);
  ASSERT_EQ(directory->sources.size(), units.size());
  uint64_t bytes = 0;
  size_t i = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    ASSERT_EQ(directory->sources[u].size(), units[u].parameters.size());
    for (const ParameterSource& source : directory->sources[u]) {
      EXPECT_EQ(source.file.path, path_ + "/model.safetensors");
      EXPECT_EQ(source.offset, prefix->offsets[i]);
      EXPECT_EQ(source.dtype, i == 3 ? DType::kBF16 : DType::kF32);
      bytes += source.bytes;
      ++i;
    }
  }
  EXPECT_EQ(i, entries_.size());
  EXPECT_EQ(bytes, directory->weight_bytes);
  EXPECT_EQ(bytes, prefix->file_size - prefix->bytes.size());
  EXPECT_TRUE(directory->ignored.empty());
}

TEST_F(DirectoryTest, BiasesInFp16) {
  Write("config.json",
        absl::StrReplaceAll(kConfig, {{"Qwen3ForCausalLM", "Qwen2ForCausalLM"},
                                      {"\"qwen3\"", "\"qwen2\""},
                                      {"float32", "float16"}}));
  std::erase_if(entries_, [](const SafetensorsEntry& entry) {
    return absl::StrContains(entry.name, "q_norm") ||
           absl::StrContains(entry.name, "k_norm");
  });
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto& [name, size] :
         {std::pair("q", 8), std::pair("k", 4), std::pair("v", 4)}) {
      entries_.push_back({absl::StrCat("model.layers.", layer, ".self_attn.",
                                       name, "_proj.bias"),
                          FileDType::kF16,
                          {size}});
    }
  }
  for (SafetensorsEntry& entry : entries_) entry.dtype = FileDType::kF16;
  WriteWeights("model.safetensors", entries_);
  const auto directory = OpenModelDirectory(AnyFiles(), path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->config.dtype, DType::kF16);
  const auto units = ModelUnits(directory->config);
  EXPECT_EQ(units[1].parameters[2].role, ParamRole::kQBias);
  EXPECT_EQ(directory->sources[1][2].bytes, 16u);
  EXPECT_EQ(directory->sources[1][2].dtype, DType::kF16);
  std::erase_if(entries_, [](const SafetensorsEntry& entry) {
    return entry.name == "model.layers.1.self_attn.v_proj.bias";
  });
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"missing", "'model.layers.1.self_attn.v_proj.bias'"});
}

TEST_F(DirectoryTest, Shards) {
  WriteTwoShards();
  const auto directory = OpenModelDirectory(AnyFiles(), path_ + "/");
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->sources[0][0].file.path,
            path_ + "/model-00001-of-00002.safetensors");
  EXPECT_EQ(directory->sources[1][0].file.path,
            path_ + "/model-00002-of-00002.safetensors");
}

TEST_F(DirectoryTest, MissingShard) {
  WriteTwoShards();
  std::filesystem::remove(path_ + "/model-00002-of-00002.safetensors");
  ExpectRefused(absl::StatusCode::kNotFound,
                {"/model-00002-of-00002.safetensors: this shard, named in "
                 "model.safetensors.index.json, is missing"});
}

TEST_F(DirectoryTest, IndexNamesTheWrongShard) {
  WriteTwoShards();
  Write("model.safetensors.index.json",
        SafetensorsIndexJson({{"model.norm.weight", ShardFileName(0, 2)},
                              {"absent", ShardFileName(1, 2)}},
                             0));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"tensor 'absent' is not in "
                 "'model-00002-of-00002.safetensors'"});
}

TEST_F(DirectoryTest, TensorInTwoShards) {
  WriteTwoShards();
  WriteWeights(ShardFileName(1, 2), entries_);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"model-00002-of-00002.safetensors: tensor ", " is also in "});
}

TEST_F(DirectoryTest, IndexPointsOutside) {
  Write("model.safetensors.index.json",
        SafetensorsIndexJson({{"a", "../secret.safetensors"}}, 0));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"model.safetensors.index.json: ", "'../secret.safetensors'",
                 "is not a file of this directory"});
}

TEST_F(DirectoryTest, NothingThere) {
  EXPECT_TRUE(
      absl::IsNotFound(OpenModelDirectory(AnyFiles(), path_ + "/no").status()));
  ExpectRefused(absl::StatusCode::kNotFound, {"model.safetensors"});
  Write("pytorch_model.bin", "");
  ExpectRefused(absl::StatusCode::kNotFound, {"pytorch_model.bin is not read"});
  std::filesystem::remove(path_ + "/config.json");
  ExpectRefused(absl::StatusCode::kNotFound,
                {path_ + "/config.json: cannot be opened: No such file"});
  const absl::Status file =
      OpenModelDirectory(AnyFiles(), path_ + "/pytorch_model.bin").status();
  EXPECT_TRUE(absl::StrContains(file.message(), "not a directory")) << file;
}

TEST_F(DirectoryTest, ShapeMismatch) {
  Entry("model.layers.1.mlp.up_proj.weight").shape = {13, 8};
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {path_ + "/model.safetensors", "[13, 8] found", "[12, 8] expected",
       "parameter model.layers.1.mlp.up_proj.weight"});
}

TEST_F(DirectoryTest, UnsupportedFileDType) {
  Entry("model.norm.weight").dtype = FileDType::kF64;
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(absl::StatusCode::kUnimplemented,
                {"model.norm.weight", "dtype F64", "F32, BF16, F16"});
}

TEST_F(DirectoryTest, MissingParametersAreNamed) {
  entries_.erase(entries_.begin() + 2, entries_.begin() + 9);
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(
      absl::StatusCode::kInvalidArgument,
      {"missing", "'model.layers.0.self_attn.q_proj.weight'", "and 2 more"});
}

TEST_F(DirectoryTest, UnexpectedTensorsAreNamed) {
  entries_.push_back(
      {"model.layers.0.self_attn.q_proj.bias", FileDType::kF32, {8}});
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"no place", "'model.layers.0.self_attn.q_proj.bias'"});
}

TEST_F(DirectoryTest, HarmlessTensorsAreListed) {
  entries_.push_back({"lm_head.weight", FileDType::kF32, {10, 8}});
  entries_.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", FileDType::kF32, {2}});
  WriteWeights("model.safetensors", entries_);
  const auto directory = OpenModelDirectory(AnyFiles(), path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(
      directory->ignored,
      (std::vector<std::string>{
          "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}));
}

TEST_F(DirectoryTest, TiedHeadThatDiffersIsRefused) {
  std::map<std::string, std::string> index;
  for (const SafetensorsEntry& entry : entries_) {
    index[entry.name] = ShardFileName(0, 2);
  }
  index["lm_head.weight"] = ShardFileName(1, 2);
  WriteWeights(ShardFileName(0, 2), entries_, 'w');
  WriteWeights(ShardFileName(1, 2),
               {{"lm_head.weight", FileDType::kF32, {10, 8}}}, 'v');
  Write("model.safetensors.index.json", SafetensorsIndexJson(index, 0));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"lm_head.weight differs from model.embed_tokens.weight",
                 "tie_word_embeddings"});
  WriteWeights(ShardFileName(1, 2),
               {{"lm_head.weight", FileDType::kF32, {10, 8}}}, 'w');
  EXPECT_TRUE(OpenModelDirectory(AnyFiles(), path_).ok());
}

TEST_F(DirectoryTest, UntiedNeedsTheHead) {
  Write("config.json",
        absl::StrReplaceAll(kConfig, {{"\"tie_word_embeddings\": true",
                                       "\"tie_word_embeddings\": false"}}));
  WriteWeights("model.safetensors", entries_);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"missing", "'lm_head.weight'"});
  entries_.push_back({"lm_head.weight", FileDType::kF32, {10, 8}});
  WriteWeights("model.safetensors", entries_);
  const auto directory = OpenModelDirectory(AnyFiles(), path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->sources[3].size(), 2u);
}

TEST_F(DirectoryTest, TruncatedWeights) {
  WriteWeights("model.safetensors", entries_);
  const uint64_t size =
      std::filesystem::file_size(path_ + "/model.safetensors");
  std::filesystem::resize_file(path_ + "/model.safetensors", size - 5);
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                {"model.safetensors: truncated: ",
                 absl::StrCat(size - 5, " bytes found, ", size, " expected")});
}

TEST_F(DirectoryTest, RandomInitNeedsNoWeights) {
  Write("tokenizer.json", "{}");
  Write("model.safetensors", "broken");
  const auto directory =
      OpenModelDirectory(AnyFiles(), path_, {.init = ModelInit::kRandom});
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->tokenizer_files.size(), 1u);
  EXPECT_TRUE(directory->sources.empty());
  EXPECT_EQ(directory->weight_bytes, 0u);
}

class AllBut final : public FileOpener {
 public:
  explicit AllBut(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<InputFile> Open(const std::string& path) const override {
    if (path != name_) return AnyFiles().Open(path);
    return absl::PermissionDeniedError(path + " is outside");
  }
  absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const override {
    if (path == name_) return Open(path).status();
    return AnyFiles().OpenDirectory(path);
  }

 private:
  const std::string name_;
};

TEST_F(DirectoryTest, EveryFileIsAskedFor) {
  WriteTwoShards();
  Write("merges.txt", "");
  for (const char* forbidden :
       {"", "/config.json", "/merges.txt", "/model.safetensors.index.json",
        "/model-00002-of-00002.safetensors"}) {
    const std::string name = path_ + forbidden;
    const absl::Status status =
        OpenModelDirectory(AllBut(name), path_).status();
    EXPECT_EQ(status, absl::PermissionDeniedError(name + " is outside"));
  }
}

TEST_F(DirectoryTest, LfsPointersAreNamed) {
  const std::string pointer =
      absl::StrCat("version https://git-lfs.github.com/spec/v1\noid sha256:",
                   std::string(64, '0'), "\nsize 988097824\n");
  ASSERT_NO_FATAL_FAILURE(WriteTwoShards());
  for (const std::string& name :
       {std::string("chat_template.jinja"), std::string("tokenizer.json"),
        ShardFileName(1, 2), std::string("model.safetensors.index.json"),
        std::string("model.safetensors"), std::string("config.json")}) {
    Write(name, pointer);
    ExpectRefused(
        absl::StatusCode::kInvalidArgument,
        {path_ + "/" + name + ": is a Git LFS pointer", "run git lfs pull"});
    // The shards' index stays, which the single file comes before.
    if (!absl::StartsWith(name, "model")) {
      std::filesystem::remove(path_ + "/" + name);
    }
  }
}

TEST(InputFileTest, LfsPointer) {
  EXPECT_TRUE(IsLfsPointer("version https://git-lfs.github.com/spec/v1\noid"));
  EXPECT_FALSE(IsLfsPointer("version https://git-lfs.github.com"));
  EXPECT_FALSE(IsLfsPointer(""));
}

TEST_F(DirectoryTest, NotARegularFile) {
  WriteTwoShards();
  const std::string shard = path_ + "/model-00001-of-00002.safetensors";
  std::filesystem::remove(shard);
  ASSERT_EQ(mkfifo(shard.c_str(), 0600), 0);
  ExpectRefused(absl::StatusCode::kInvalidArgument, {"not a regular file"});
}

}  // namespace
}  // namespace roundhouse
