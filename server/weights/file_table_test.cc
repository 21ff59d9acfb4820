#include "server/weights/file_table.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/model/safetensors.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

class FileTableTest : public testing::TestWithParam<bool> {
 protected:
  FileTableTest() : arena_(*HostArena::Create(64 << 20, 3)) {
    state_ = *TrainingState::Create(*arena_,
                                    TestStateOptions(GetParam(), DType::kBF16));
  }
  int64_t ParameterCount() const {
    int64_t count = 0;
    for (const UnitSpec& unit : state_->units()) {
      count += static_cast<int64_t>(unit.parameters.size());
    }
    return count;
  }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
};

INSTANTIATE_TEST_SUITE_P(TiedAndNot, FileTableTest, testing::Bool());

TEST_P(FileTableTest, TheTableInTheArenaIsTheParts) {
  std::vector<FilePart> parts(3);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].path = "/somewhere/" + std::string(i * 3 + 1, 'p');
    parts[i].prefix = std::string(i * 5, 'x');
    parts[i].file_bytes = 1000 + i;
    parts[i].root = std::string(i, 'r');
    parts[i].identity = {.device = i, .inode = i + 1, .mtime_ns = -1};
    for (size_t t = 0; t < i + 1; ++t) {
      wire::FileTensor tensor = {};
      tensor.file_offset = 100 * i + t;
      tensor.element_count = t + 1;
      parts[i].tensors.push_back(tensor);
    }
  }
  const uint64_t before = arena_->used_bytes();
  auto table = *FileTable::Create(*arena_, wire::FileOpKind::kSave, parts);
  const wire::FileOp& op = table->op();
  EXPECT_EQ(op.kind, wire::FileOpKind::kSave);
  ASSERT_EQ(op.shard_count, 3u);
  ASSERT_EQ(op.tensor_count, 6u);
  const wire::Arena& arena = arena_->arena();
  auto* shards = arena.At<wire::FileShard>(op.shards_offset, 3);
  const auto* tensors = arena.At<wire::FileTensor>(op.tensors_offset, 6);
  uint32_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(
        std::string(arena.At<char>(shards[i].path_offset, shards[i].path_bytes),
                    shards[i].path_bytes),
        parts[i].path);
    EXPECT_EQ(std::string(arena.At<char>(shards[i].prefix_offset,
                                         shards[i].prefix_bytes),
                          shards[i].prefix_bytes),
              parts[i].prefix);
    EXPECT_EQ(
        std::string(arena.At<char>(shards[i].root_offset, shards[i].root_bytes),
                    shards[i].root_bytes),
        parts[i].root);
    EXPECT_EQ(shards[i].device, i);
    EXPECT_EQ(shards[i].inode, i + 1);
    EXPECT_EQ(shards[i].mtime_ns, -1);
    EXPECT_EQ(shards[i].file_bytes, parts[i].file_bytes);
    EXPECT_EQ(shards[i].first_tensor, next);
    ASSERT_EQ(shards[i].tensor_count, parts[i].tensors.size());
    for (const wire::FileTensor& tensor : parts[i].tensors) {
      EXPECT_EQ(tensors[next].file_offset, tensor.file_offset);
      EXPECT_EQ(tensors[next++].element_count, tensor.element_count);
    }
  }
  for (int i = 0; i < 32; ++i) {
    shards[1].sha256[i] = static_cast<uint8_t>(i + 0xa0);
  }
  EXPECT_EQ(table->Sha256(1).substr(0, 8), "a0a1a2a3");
  EXPECT_EQ(table->Sha256(1).size(), 64u);
  table.reset();
  EXPECT_EQ(arena_->used_bytes(), before);
}

TEST_P(FileTableTest, InitDrawsEveryParameterFromAStreamOfItsOwn) {
  const std::vector<FilePart> parts = InitParts(*state_);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(parts[0].tensors.size()), ParameterCount());
  std::set<uint64_t> streams, targets;
  size_t next = 0;
  for (const UnitSpec& unit : state_->units()) {
    for (const ParameterSpec& spec : unit.parameters) {
      const wire::FileTensor& tensor = parts[0].tensors[next++];
      EXPECT_EQ(static_cast<int64_t>(tensor.element_count), spec.element_count);
      EXPECT_EQ(tensor.init, spec.shape.size() == 1
                                 ? wire::TensorInit::kOnes
                                 : wire::TensorInit::kNormal);
      EXPECT_EQ(tensor.init_std, 0.02);
      EXPECT_EQ(tensor.first_dtype, DType::kBF16);
      EXPECT_EQ(tensor.second_dtype, DType::kF32);
      streams.insert(tensor.init_stream);
      targets.insert(tensor.first_offset);
      targets.insert(tensor.second_offset);
    }
  }
  EXPECT_EQ(streams.size(), next);
  EXPECT_EQ(targets.size(), 2 * next);
  const auto table = FileTable::Create(*arena_, wire::FileOpKind::kInit, parts);
  EXPECT_EQ((*table)->op().shard_count, 0u);
  EXPECT_EQ((*table)->op().shards_offset, 0u);
  EXPECT_EQ((*table)->op().tensor_count, next);
}

TEST_P(FileTableTest, LoadSendsEverySourceToItsComputeCopyAndMaster) {
  ModelDirectory directory;
  uint64_t offset = 8;
  for (size_t unit = 0; unit < state_->units().size(); ++unit) {
    auto& sources = directory.sources.emplace_back();
    for (const ParameterSpec& spec : state_->units()[unit].parameters) {
      const auto bytes = static_cast<uint64_t>(spec.element_count) * 4;
      sources.push_back(
          {{"", unit % 2 == 0 ? "a" : "b", {.size_bytes = 1 << 20}},
           offset,
           bytes,
           DType::kF32});
      offset += bytes;
    }
  }
  const std::vector<FilePart> parts = LoadParts(directory.sources, 0, *state_);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].path, "a");
  EXPECT_EQ(parts[1].path, "b");
  std::map<uint64_t, wire::FileTensor> by_offset;
  for (const FilePart& part : parts) {
    EXPECT_EQ(part.file_bytes, 1u << 20);
    for (const wire::FileTensor& t : part.tensors) by_offset[t.file_offset] = t;
  }
  EXPECT_EQ(static_cast<int64_t>(by_offset.size()), ParameterCount());
  for (size_t unit = 0; unit < state_->units().size(); ++unit) {
    const wire::UnitLayout& layout = state_->layout(static_cast<int>(unit));
    for (size_t p = 0; p < state_->units()[unit].parameters.size(); ++p) {
      const ParameterSpec& spec = state_->units()[unit].parameters[p];
      const auto at = static_cast<uint64_t>(spec.unit_offset_elements);
      const wire::FileTensor& tensor =
          by_offset.at(directory.sources[unit][p].offset);
      EXPECT_EQ(tensor.file_dtype, DType::kF32);
      EXPECT_EQ(tensor.first_offset, layout.compute_offset + 2 * at);
      EXPECT_EQ(tensor.second_offset, layout.master_offset + 4 * at);
    }
  }
}

class AdapterFileTableTest : public testing::Test {
 protected:
  AdapterFileTableTest() : arena_(*HostArena::Create(64 << 20, 3)) {
    TrainingStateOptions options = TestStateOptions(false, DType::kBF16);
    options.adapter = TestAdapter();
    state_ = MakeTestState(*arena_, options);
  }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
};

TEST_F(AdapterFileTableTest, InitDrawsAdaptersAsPeftDoes) {
  const std::vector<FilePart> parts = InitParts(*state_);
  ASSERT_EQ(parts.size(), 1u);
  ASSERT_EQ(parts[0].tensors.size(), 3u * 6u);
  std::set<uint64_t> streams;
  size_t next = 0;
  for (int unit = 5; unit < 8; ++unit) {
    const wire::UnitLayout& layout = state_->layout(unit);
    for (const ParameterSpec& spec : state_->units()[unit].parameters) {
      const wire::FileTensor& tensor = parts[0].tensors[next++];
      const bool a = spec.name.find("lora_A") != std::string::npos;
      EXPECT_EQ(tensor.init,
                a ? wire::TensorInit::kUniform : wire::TensorInit::kZeros);
      if (a) {
        EXPECT_DOUBLE_EQ(tensor.init_std * tensor.init_std *
                             static_cast<double>(spec.shape[1]),
                         1)
            << spec.name;
      }
      const uint64_t at = 4 * static_cast<uint64_t>(spec.unit_offset_elements);
      EXPECT_EQ(tensor.first_offset, layout.compute_offset + at);
      EXPECT_EQ(tensor.second_offset, layout.master_offset + at);
      EXPECT_EQ(tensor.first_dtype, DType::kF32);
      streams.insert(tensor.init_stream);
    }
  }
  EXPECT_EQ(streams.size(), next);
}

TEST_F(AdapterFileTableTest, TheBaseIsLoadedOnceAndAdaptersTwice) {
  std::vector<std::vector<ParameterSource>> sources(8);
  for (size_t unit = 0; unit < 8; ++unit) {
    for (const ParameterSpec& spec : state_->units()[unit].parameters) {
      sources[unit].push_back({{"", unit < 5 ? "base" : "adapter"},
                               0,
                               static_cast<uint64_t>(spec.element_count) * 2,
                               DType::kBF16});
    }
  }
  const std::vector<std::vector<ParameterSource>> adapters(sources.begin() + 5,
                                                           sources.end());
  sources.resize(5);
  const std::vector<FilePart> base = LoadParts(sources, 0, *state_);
  ASSERT_EQ(base.size(), 1u);
  for (const wire::FileTensor& tensor : base[0].tensors) {
    EXPECT_EQ(tensor.first_dtype, DType::kBF16);
    EXPECT_EQ(tensor.second_offset, 0u);
  }
  const std::vector<FilePart> trained = LoadParts(adapters, 5, *state_);
  ASSERT_EQ(trained.size(), 1u);
  EXPECT_EQ(trained[0].path, "adapter");
  ASSERT_EQ(trained[0].tensors.size(), 18u);
  EXPECT_EQ(trained[0].tensors[0].first_offset,
            state_->layout(5).compute_offset);
  EXPECT_EQ(trained[0].tensors[0].first_dtype, DType::kF32);
  EXPECT_EQ(trained[0].tensors[0].second_offset,
            state_->layout(5).master_offset);
}

TEST_F(AdapterFileTableTest, SavesTheAdaptersUnderPeftsNames) {
  const auto weights = TrainedFiles(SavedStateOf(*state_, 0), "/dir");
  const auto optimizer = OptimizerFiles(SavedStateOf(*state_, 0), "/dir");
  ASSERT_TRUE(weights.ok() && optimizer.ok());
  ASSERT_EQ(weights->parts.size(), 1u);
  const FilePart& part = weights->parts[0];
  EXPECT_EQ(part.path, "/dir/adapter_model.safetensors");
  const auto header =
      ParseSafetensorsHeader(part.prefix.substr(8), part.file_bytes, part.path);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors.size(), 18u);
  const auto& a = header->tensors.at(
      "base_model.model.model.layers.2.mlp.down_proj.lora_A.weight");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{3, 36}));
  EXPECT_EQ(a.dtype, FileDType::kF32);
  EXPECT_EQ(optimizer->total_bytes, 3 * weights->total_bytes);
}

// The headers that a save writes are ones that a load accepts, and the data
// follow each other to the end.
TEST_P(FileTableTest, SavedFilesHaveWholeHeadersUnderTheirNames) {
  const auto model = TrainedFiles(SavedStateOf(*state_, 0), "/dir");
  const auto optimizer = OptimizerFiles(SavedStateOf(*state_, 0), "/dir");
  ASSERT_TRUE(model.ok() && optimizer.ok());
  ASSERT_EQ(model->parts.size(), 1u);
  ASSERT_EQ(optimizer->parts.size(), 1u);
  EXPECT_EQ(model->parts[0].path, "/dir/model.safetensors");
  EXPECT_EQ(optimizer->parts[0].path, "/dir/optimizer.safetensors");
  EXPECT_EQ(model->index_name, "");
  EXPECT_EQ(optimizer->total_bytes, 6 * model->total_bytes);
  for (const auto* files : {&*model, &*optimizer}) {
    const FilePart& part = files->parts[0];
    const auto header = ParseSafetensorsHeader(part.prefix.substr(8),
                                               part.file_bytes, part.path);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->tensors.size(), part.tensors.size());
    for (const UnitSpec& unit : state_->units()) {
      for (const ParameterSpec& spec : unit.parameters) {
        const std::string suffix = files == &*model ? "" : ".exp_avg_sq";
        ASSERT_EQ(header->tensors.count(spec.name + suffix), 1u) << spec.name;
        EXPECT_EQ(header->tensors.at(spec.name + suffix).shape, spec.shape);
      }
    }
  }
}

}  // namespace
}  // namespace roundhouse
