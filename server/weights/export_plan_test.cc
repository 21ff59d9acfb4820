#include "server/weights/export_plan.h"

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/model/directory.h"
#include "base/model/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"
#include "server/weights/adapter_files.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::set<std::string>;

constexpr int64_t kLayers = 3;
// q_proj, v_proj and down_proj of every layer.
constexpr size_t kAdapted = 3 * kLayers;

class ExportPlanTest : public testing::Test {
 protected:
  ExportPlanTest() : root_(testing::TempDir() + "/export_plan_test") {
    fs::remove_all(root_);
    WriteModel("base", DType::kBF16);
    WriteAdapter("adapter");
  }
  ~ExportPlanTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(root_ + "/" + name).parent_path());
    WriteTestFile(root_ + "/" + name, text);
  }
  void WriteTensors(const std::string& name,
                    const std::vector<SafetensorsEntry>& entries) {
    const auto prefix = BuildSafetensorsHeader(entries);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    Write(name,
          prefix->bytes +
              std::string(prefix->file_size - prefix->bytes.size(), '\0'));
  }
  // Norms are fp32 whatever `dtype` is.
  void WriteModel(const std::string& name, DType dtype) {
    Json config = {{"architectures", {"Qwen3ForCausalLM"}},
                   {"model_type", "qwen3"},
                   {"hidden_size", 24},
                   {"num_hidden_layers", kLayers},
                   {"num_attention_heads", 2},
                   {"num_key_value_heads", 1},
                   {"head_dim", 10},
                   {"intermediate_size", 36},
                   {"vocab_size", 50},
                   {"max_position_embeddings", 64},
                   {"tie_word_embeddings", true},
                   {"dtype", "bfloat16"}};
    Write(name + "/config.json", config.dump());
    Write(name + "/tokenizer.json", "{}");
    Write(name + "/generation_config.json", "{}");
    std::vector<SafetensorsEntry> entries;
    for (const UnitSpec& unit : ModelUnits(TestModel(true, kLayers))) {
      for (const ParameterSpec& spec : unit.parameters) {
        const bool norm = spec.shape.size() == 1;
        entries.push_back({spec.name,
                           norm ? FileDType::kF32 : ToFileDType(dtype),
                           spec.shape});
      }
    }
    WriteTensors(name + "/model.safetensors", entries);
  }
  void WriteAdapter(const std::string& name, int64_t rank = 3) {
    const AdapterConfig config = {
        .rank = rank, .alpha = 6, .dropout = 0.1, .targets = 0x45};
    Write(name + "/adapter_config.json", AdapterConfigJson(config, "base"));
    std::vector<SafetensorsEntry> entries;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const ParameterSpec& spec :
           AdapterUnit(TestModel(true, kLayers), config, layer).parameters) {
        entries.push_back({spec.name, FileDType::kF32, spec.shape});
      }
    }
    WriteTensors(name + "/adapter_model.safetensors", entries);
  }

  ExportRequest Request(const std::string& source, ExportKind kind) const {
    return {
        .source = root_ + "/" + source, .kind = kind, .output = root_ + "/out"};
  }
  absl::StatusOr<ExportPlan> Plan(const ExportRequest& request) const {
    ExportPlanOptions options = options_;
    options.files = &AnyFiles();
    if (!options.find_base) {
      options.find_base =
          [this](const std::string& name) -> absl::StatusOr<std::string> {
        return root_ + "/" + name;
      };
    }
    return PlanExport(request, options);
  }
  void ExpectError(const ExportRequest& request, const std::string& field,
                   const std::string& text,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = Plan(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(ErrorField(status), field) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
  static Names CopiedNames(const ExportPlan& plan) {
    Names names;
    for (const CopiedFile& copied : plan.copied_files) {
      names.insert(copied.name);
    }
    return names;
  }
  // Every byte behind the headers is written once.
  static void ExpectCovered(const ExportPlan& plan) {
    std::map<std::string, uint64_t> next;
    uint64_t bytes = 0;
    for (const FilePart& part : plan.parts) {
      next[part.path] = part.prefix.size();
    }
    for (const ExportPiece& piece : plan.pieces) {
      uint64_t& at = next.at(plan.parts[piece.part].path);
      EXPECT_EQ(piece.rows.output_offset, at) << piece.tensor;
      at += piece.bytes;
      bytes += piece.bytes;
    }
    EXPECT_EQ(bytes, plan.bytes);
    for (const FilePart& part : plan.parts) {
      EXPECT_EQ(next[part.path], part.file_bytes);
    }
  }

  const std::string root_;
  ExportPlanOptions options_;
};

TEST_F(ExportPlanTest, MergedHasTheBasesTensorsAndTheAdaptersPlaces) {
  const auto plan = Plan(Request("adapter", ExportKind::kMerged));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kind, ExportKind::kMerged);
  ExpectCovered(*plan);
  ASSERT_EQ(plan->parts.size(), 1u);
  EXPECT_EQ(plan->parts[0].path, "model.safetensors");
  size_t adapted = 0;
  for (const ExportPiece& piece : plan->pieces) {
    // Dtypes stay as they are in the base's files.
    EXPECT_EQ(piece.rows.output_dtype, piece.rows.base.dtype);
    if (piece.rows.rank == 0) continue;
    ++adapted;
    EXPECT_EQ(piece.rows.rank, 3u);
    EXPECT_EQ(piece.rows.scale, 2.0);
    EXPECT_TRUE(absl::EndsWith(piece.tensor, "q_proj.weight") ||
                absl::EndsWith(piece.tensor, "v_proj.weight") ||
                absl::EndsWith(piece.tensor, "down_proj.weight"))
        << piece.tensor;
  }
  EXPECT_EQ(adapted, kAdapted);
  EXPECT_EQ(plan->texts.at("config.json"),
            ReadTestFile(root_ + "/base/config.json"));
  EXPECT_EQ(CopiedNames(*plan),
            (Names{"generation_config.json", "tokenizer.json"}));
  EXPECT_EQ(plan->output, root_ + "/out");
}

TEST_F(ExportPlanTest, AMatrixMeetsItsOwnAAndB) {
  const auto plan = Plan(Request("adapter", ExportKind::kMerged));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string module = "model.layers.1.mlp.down_proj";
  const auto header = ReadSafetensorsHeader(
      AnyFiles(), root_ + "/adapter/adapter_model.safetensors");
  ASSERT_TRUE(header.ok());
  const auto base =
      ReadSafetensorsHeader(AnyFiles(), root_ + "/base/model.safetensors");
  ASSERT_TRUE(base.ok());
  for (const ExportPiece& piece : plan->pieces) {
    if (piece.tensor != module + ".weight") continue;
    EXPECT_EQ(piece.rows.row_count, 24u);
    EXPECT_EQ(piece.rows.columns, 36u);
    EXPECT_EQ(piece.rows.base.offset, base->tensors.at(piece.tensor).begin);
    const std::string prefix = "base_model.model." + module;
    EXPECT_EQ(piece.rows.lora_a.offset,
              header->tensors.at(prefix + ".lora_A.weight").begin);
    EXPECT_EQ(piece.rows.lora_b.offset,
              header->tensors.at(prefix + ".lora_B.weight").begin);
    EXPECT_EQ(piece.rows.lora_b.file.identity.size_bytes, header->file_size);
    return;
  }
  FAIL() << module << " is not there";
}

TEST_F(ExportPlanTest, ADtypeIsThatOfEveryTensorAndOfTheConfig) {
  ExportRequest request = Request("adapter", ExportKind::kMerged);
  request.dtype = DType::kF16;
  const auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const ExportPiece& piece : plan->pieces) {
    EXPECT_EQ(piece.rows.output_dtype, DType::kF16) << piece.tensor;
  }
  EXPECT_EQ(Json::parse(plan->texts.at("config.json"))["dtype"], "float16");
}

TEST_F(ExportPlanTest, ShardsAndPieces) {
  options_.max_shard_bytes = 6000;
  options_.max_piece_bytes = 200;
  const auto plan = Plan(Request("base", ExportKind::kFull));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectCovered(*plan);
  const size_t shards = plan->parts.size();
  ASSERT_GT(shards, 2u);
  for (const FilePart& part : plan->parts) {
    EXPECT_LE(part.file_bytes - part.prefix.size(), 6000u);
  }
  for (const ExportPiece& piece : plan->pieces) EXPECT_LE(piece.bytes, 200u);
  const Json index =
      Json::parse(plan->texts.at("model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], plan->bytes);
  EXPECT_EQ(index["weight_map"]["model.norm.weight"],
            absl::StrCat("model-00001-of-0000", shards, ".safetensors"));
}

// What a file's pieces wrote is on the disk when its last piece is over, and as
// soon as it is as much as a piece has at most.
TEST_F(ExportPlanTest, SmallPiecesWaitForTheDiskTogether) {
  options_.max_shard_bytes = 6000;
  options_.max_piece_bytes = 900;
  const auto plan = Plan(Request("base", ExportKind::kFull));
  ASSERT_TRUE(plan.ok()) << plan.status();
  uint64_t unsynced = 0;
  size_t unsynced_pieces = 0;
  for (size_t i = 0; i < plan->pieces.size(); ++i) {
    const ExportPiece& piece = plan->pieces[i];
    unsynced += piece.bytes;
    const bool last =
        i + 1 == plan->pieces.size() || plan->pieces[i + 1].part != piece.part;
    EXPECT_EQ(piece.rows.sync, last || unsynced >= 900) << i;
    EXPECT_LT(unsynced, 1800u);
    if (piece.rows.sync) unsynced = 0;
    unsynced_pieces += piece.rows.sync ? 0 : 1;
  }
  EXPECT_GT(unsynced_pieces, 5u);
}

TEST_F(ExportPlanTest, AnAdapterIsCopiedAsItIs) {
  Write("adapter/trainer_state.json", "{}");
  for (ExportKind kind : {ExportKind::kAsIs, ExportKind::kAdapter}) {
    const auto plan = Plan(Request("adapter", kind));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kind, ExportKind::kAdapter);
    ExpectCovered(*plan);
    EXPECT_EQ(plan->pieces.size(), 2 * kAdapted);
    for (const ExportPiece& piece : plan->pieces) {
      EXPECT_EQ(piece.rows.rank, 0u);
    }
    EXPECT_EQ(plan->parts[0].path, "adapter_model.safetensors");
    EXPECT_EQ(CopiedNames(*plan),
              (Names{"adapter_config.json", "trainer_state.json"}));
  }
}

TEST_F(ExportPlanTest, TheAdaptersOwnTokenizerGoesWithTheMergedModel) {
  Write("adapter/tokenizer.json", "{}");
  Write("adapter/chat_template.jinja", "x");
  Write("base/tokenizer_config.json", "{}");
  const auto plan = Plan(Request("adapter", ExportKind::kMerged));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string base = root_ + "/base/", adapter = root_ + "/adapter/";
  std::vector<std::string> copied;
  for (const CopiedFile& one : plan->copied_files) {
    copied.push_back(one.file.path);
  }
  EXPECT_EQ(copied,
            (std::vector<std::string>{adapter + "tokenizer.json",
                                      adapter + "chat_template.jinja",
                                      base + "generation_config.json"}));
}

TEST_F(ExportPlanTest, KindsAndDtypesThatDoNotGoTogether) {
  ExpectError(Request("adapter", ExportKind::kFull), "kind", "is an adapter");
  ExpectError(Request("base", ExportKind::kMerged), "kind",
              "is a whole model, not an adapter");
  ExpectError(Request("base", ExportKind::kAdapter), "kind",
              "is a whole model, not an adapter");
  ExportRequest request = Request("adapter", ExportKind::kAdapter);
  request.dtype = DType::kBF16;
  ExpectError(request, "dtype", "as it is");
}

TEST_F(ExportPlanTest, ABaseThatIsNotNamedNotThereOrAnother) {
  const ExportRequest request = Request("adapter", ExportKind::kMerged);
  const std::string path = root_ + "/adapter/adapter_config.json";
  Json config = Json::parse(ReadTestFile(path));
  config["base_model_name_or_path"] = "gone";
  WriteTestFile(path, config.dump());
  ExpectError(request, "source", "gone: no such model directory");
  config["base_model_name_or_path"] = nullptr;
  WriteTestFile(path, config.dump());
  ExpectError(request, "source", "base_model_name_or_path is missing");
  WriteAdapter("adapter");
  options_.find_base = [](const std::string& name) {
    return RequestError(FieldReason::kPathNotFound, "base_model_name_or_path",
                        name + " is not here");
  };
  ExpectError(request, "source", path + ": base is not here");
  options_.find_base = nullptr;
  Json base = Json::parse(ReadTestFile(root_ + "/base/config.json"));
  base["intermediate_size"] = 40;
  WriteTestFile(root_ + "/base/config.json", base.dump());
  ExpectError(request, "source", "shape [36, 24] found");
}

TEST_F(ExportPlanTest, AnAdapterOfOtherShapes) {
  WriteAdapter("other", 4);
  WriteTestFile(root_ + "/other/adapter_config.json",
                ReadTestFile(root_ + "/adapter/adapter_config.json"));
  ExpectError(Request("other", ExportKind::kMerged), "source",
              "shape [4, 24] found, [3, 24] expected");
}

}  // namespace
}  // namespace roundhouse
