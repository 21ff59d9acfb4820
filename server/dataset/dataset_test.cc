#include "server/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

using nlohmann::json;
constexpr int64_t kVocab = 100;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

// Three sequences: 10 11 12 13 | 20 21 | 30 31 32; the second has a prompt of
// one token, the third one of two.
class DatasetTest : public testing::Test {
 protected:
  DatasetTest() : path_(testing::TempDir() + "/dataset_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    Tokens({10, 11, 12, 13, 20, 21, 30, 31, 32});
    Labels({0, 1, 1, 1, 0, 1, 0, 0, 1});
    Offsets({0, 4, 6, 9});
    manifest_ = {{"format_version", 1},
                 {"sequences", 3},
                 {"tokens", 9},
                 {"target_tokens", 5},
                 {"truncated", 1},
                 {"dropped", {{"no_target_tokens", 2}, {"other", 3}}},
                 {"max_sequence_tokens", 4},
                 {"bigram_loss", 1.5},
                 {"files", {{"tokens.u32", {{"sha256", "abc"}}}}}};
  }
  ~DatasetTest() override { std::filesystem::remove_all(path_); }

  void Tokens(const std::vector<uint32_t>& values) {
    WriteTestFile(path_ + "/tokens.u32", Bytes(values));
  }
  void Labels(const std::vector<uint8_t>& values) {
    WriteTestFile(path_ + "/labels.u8", Bytes(values));
  }
  void Offsets(const std::vector<uint64_t>& values) {
    WriteTestFile(path_ + "/offsets.u64", Bytes(values));
  }
  // Packs them into rows: the offsets of each row's first sequence, and 3.
  void Rows(const std::vector<uint64_t>& values) {
    WriteTestFile(path_ + "/rows.u64", Bytes(values));
    manifest_["packed_rows"] = values.size() - 1;
    manifest_["max_row_tokens"] = 5;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open() {
    WriteTestFile(path_ + "/manifest.json", manifest_.dump());
    return Dataset::Open(path_, kVocab);
  }
  void ExpectBad(const std::string& text) {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in " << status;
  }

  const std::string path_;
  json manifest_;
};

TEST_F(DatasetTest, CountsAreTheManifests) {
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const Dataset::Counts& counts = (*dataset)->counts();
  EXPECT_EQ(counts.sequences, 3);
  EXPECT_EQ(counts.tokens, 9);
  EXPECT_EQ(counts.target_tokens, 5);
  EXPECT_EQ(counts.truncated, 1);
  EXPECT_EQ(counts.dropped, 5);
  EXPECT_EQ(counts.max_sequence_tokens, 4);
  EXPECT_EQ(counts.bigram_loss, 1.5);
  EXPECT_EQ(counts.tokens_sha256, "abc");
  EXPECT_FALSE(counts.packed);
  EXPECT_EQ(counts.rows, 3);
  EXPECT_EQ(counts.max_row_tokens, 4);
  EXPECT_EQ((*dataset)->SequenceTokens(1), 2);
  EXPECT_EQ((*dataset)->RowTokens(1), 2);
  EXPECT_EQ((*dataset)->TargetTokens(0), 3);
  EXPECT_EQ((*dataset)->TargetTokens(2), 1);
}

json Warning(const json& text, int rows, const std::vector<int>& lines) {
  json warning = {{"kind", "k"}, {"rows", rows}, {"lines", json::array()}};
  warning["warning"] = text;
  for (int line : lines) warning["lines"].push_back(line);
  return warning;
}

TEST_F(DatasetTest, WarningsNameTheirFirstLines) {
  EXPECT_TRUE((*Open())->counts().warnings.empty());
  manifest_["warnings"] =
      json::array({Warning("one", 1, {3}), Warning("two", 2, {3, 8}),
                   Warning("more", 9, {3, 8})});
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->counts().warnings,
            (std::vector<std::string>{"one (line 3)", "two (lines 3, 8)",
                                      "more (lines 3, 8, ...)"}));
}

TEST_F(DatasetTest, EndsOfTurnsAreIds) {
  EXPECT_TRUE((*Open())->counts().turn_end_ids.empty());
  manifest_["turn_end_ids"] = {2, 7};
  EXPECT_EQ((*Open())->counts().turn_end_ids, (std::vector<int64_t>{2, 7}));
  for (const json& bad : {json(5), json{"x"}, json{-1}, json{0.5},
                          json(std::vector<int>(65, 1))}) {
    manifest_["turn_end_ids"] = bad;
    ExpectBad("manifest.json: malformed turn_end_ids");
  }
}

TEST_F(DatasetTest, MalformedWarnings) {
  manifest_["warnings"] = 5;
  ExpectBad("manifest.json: malformed warnings");
  manifest_["warnings"] = std::vector<json>(17, Warning("x", 1, {1}));
  ExpectBad("manifest.json: malformed warnings");
  for (const json& bad :
       {json(5), json::object(), Warning(5, 1, {1}), Warning("x", 1, {}),
        Warning("x", 1, {-1}), Warning("x", 99, std::vector<int>(17, 1))}) {
    manifest_["warnings"] = json::array();
    manifest_["warnings"].push_back(bad);
    ExpectBad("manifest.json: malformed warnings");
  }
  manifest_["warnings"] = json::array();
  manifest_["warnings"].push_back(Warning("x", -1, {1}));
  ExpectBad("manifest.json: rows is not a count");
}

TEST_F(DatasetTest, TheManifestTellsWhetherATemplateWroteTheRows) {
  EXPECT_FALSE((*Open())->counts().chat_template);
  EXPECT_FALSE(*UsesChatTemplate(path_));
  manifest_["template"] = {{"file", "chat_template.jinja"}};
  EXPECT_TRUE((*Open())->counts().chat_template);
  EXPECT_TRUE(*UsesChatTemplate(path_));
  const absl::Status status = UsesChatTemplate(path_ + "/none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(DatasetTest, ARowIsTheTokensTheirTargetsAndPadding) {
  const auto dataset = *Open();
  std::vector<int32_t> tokens(5), labels(5);
  dataset->FillRow(2, 5, tokens.data(), labels.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{30, 31, 32, -1, -1}));
  EXPECT_EQ(labels, (std::vector<int32_t>{-100, 32, -100, -100, -100}));
  dataset->FillRow(0, 4, tokens.data(), labels.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{10, 11, 12, 13, -1}));
  EXPECT_EQ(labels, (std::vector<int32_t>{11, 12, 13, -100, -100}));
  EXPECT_DEATH(dataset->FillRow(0, 3, tokens.data(), labels.data()), "check");
}

TEST_F(DatasetTest, PositionsCountInTheSequenceAndInThePadding) {
  const auto dataset = *Open();
  std::vector<int32_t> tokens(5), labels(5), positions(5);
  dataset->FillRow(2, 5, tokens.data(), labels.data(), positions.data());
  EXPECT_EQ(positions, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(tokens, (std::vector<int32_t>{30, 31, 32, -1, -1}));
}

TEST_F(DatasetTest, APackedRowIsItsSequencesOneAfterTheOther) {
  Rows({0, 1, 3});
  const auto dataset = *Open();
  EXPECT_TRUE(dataset->counts().packed);
  EXPECT_EQ(dataset->counts().rows, 2);
  EXPECT_EQ(dataset->counts().max_row_tokens, 5);
  EXPECT_EQ(dataset->RowSequences(1).first, 1);
  EXPECT_EQ(dataset->RowSequences(1).end, 3);
  EXPECT_EQ(dataset->RowTokens(0), 4);
  EXPECT_EQ(dataset->RowTokens(1), 5);
  EXPECT_EQ(dataset->TargetTokens(0), 3);
  EXPECT_EQ(dataset->TargetTokens(1), 2);
  std::vector<int32_t> tokens(7), labels(7), positions(7);
  dataset->FillRow(1, 7, tokens.data(), labels.data(), positions.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{20, 21, 30, 31, 32, -1, -1}));
  EXPECT_EQ(labels,
            (std::vector<int32_t>{21, -100, -100, 32, -100, -100, -100}));
  EXPECT_EQ(positions, (std::vector<int32_t>{0, 1, 0, 1, 2, 0, 1}));
  EXPECT_DEATH(dataset->FillRow(1, 4, tokens.data(), labels.data()), "check");
}

TEST_F(DatasetTest, RowsBeginOnLines) {
  const auto plain = Open();
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE((*plain)->LinesOf({0}).empty());  // no such file
  WriteTestFile(path_ + "/lines.u32", Bytes(std::vector<uint32_t>{2, 5, 9}));
  EXPECT_EQ((*plain)->LinesOf({2, 0}), (std::vector<int64_t>{9, 2}));
  EXPECT_TRUE((*plain)->LinesOf({}).empty());
  Rows({0, 1, 3});
  const auto packed = Open();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->LinesOf({1}), (std::vector<int64_t>{5}));
}

TEST_F(DatasetTest, NothingIsPredictedAcrossSequences) {
  Labels({1, 1, 1, 1, 1, 1, 1, 1, 1});
  Rows({0, 1, 3});
  const auto dataset = *Open();
  std::vector<int32_t> tokens(5), labels(5);
  dataset->FillRow(1, 5, tokens.data(), labels.data());
  EXPECT_EQ(labels, (std::vector<int32_t>{21, -100, 31, 32, -100}));
  EXPECT_EQ(dataset->TargetTokens(1), 3);
}

TEST_F(DatasetTest, RowsThatDoNotCutTheSequencesAreRefused) {
  const std::vector<uint64_t> bad[] = {
      {0, 0, 3},              // an empty row
      {0, 2, 1, 3},           // backwards
      {0, 1, 4},              // beyond the end
      {0, 1, 2},              // short of the end
      {1, 2, 3},              // a sequence before the first
      {0, 2, 3},              // longer than the longest
      {0, ~uint64_t{0}, 3},   // wraps
      {~uint64_t{0}, 1, 3}};  // wraps
  for (const auto& rows : bad) {
    Rows(rows);
    ExpectBad("rows.u64");
  }
  Rows({0, 1, 3});
  EXPECT_TRUE(Open().ok());
  manifest_["packed_rows"] = 1;
  ExpectBad("rows.u64: is not the 16 bytes");
  manifest_["packed_rows"] = 0;
  ExpectBad("the dataset is empty");
  manifest_["packed_rows"] = -2;
  ExpectBad("packed_rows is not a count");
}

TEST_F(DatasetTest, TheLabelOfAFirstTokenIsNoTarget) {
  Labels({1, 1, 1, 1, 1, 1, 1, 1, 1});
  const auto dataset = *Open();
  EXPECT_EQ(dataset->TargetTokens(0), 3);
  EXPECT_EQ(dataset->TargetTokens(1), 1);
}

TEST_F(DatasetTest, AManifestThatIsNoneIsRefused) {
  EXPECT_FALSE(Dataset::Open(path_, kVocab).ok());
  for (const char* text :
       {"", "[]", "{", "null", "{}", R"({"format_version": "1"})",
        R"({"format_version": 2})", R"({"format_version": {}})"}) {
    WriteTestFile(path_ + "/manifest.json", text);
    const absl::Status status = Dataset::Open(path_, kVocab).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find("manifest.json"),
              std::string::npos);
  }
}

TEST_F(DatasetTest, EveryCountMustBeOne) {
  for (const char* key : {"sequences", "tokens", "target_tokens", "truncated",
                          "max_sequence_tokens"}) {
    const json good = manifest_[key];
    for (const json& bad : {json(-1), json(1.5), json("3"), json(nullptr),
                            json(uint64_t{1} << 60)}) {
      manifest_[key] = bad;
      ExpectBad(std::string(key) + " is not a count");
    }
    manifest_.erase(key);
    ExpectBad(std::string(key) + " is not a count");
    manifest_[key] = good;
  }
  EXPECT_TRUE(Open().ok());
}

TEST_F(DatasetTest, OddTypesInWhatIsOptionalDoNoHarm) {
  for (const json& odd :
       {json(nullptr), json(3), json("x"), json::array({1}), json::object()}) {
    manifest_["dropped"] = odd;
    manifest_["files"] = odd;
    manifest_["bigram_loss"] = "x";
    const auto dataset = Open();
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->counts().dropped, 0);
    EXPECT_EQ((*dataset)->counts().tokens_sha256, "");
    EXPECT_FALSE((*dataset)->counts().bigram_loss.has_value());
  }
}

TEST_F(DatasetTest, ADroppedCountThatIsNoneAddsNothing) {
  manifest_["dropped"] = {{"a", 2},
                          {"b", ~uint64_t{0}},
                          {"c", -1},
                          {"d", 1.5},
                          {"e", uint64_t{1} << 48}};
  const auto dataset = *Open();
  EXPECT_EQ(dataset->counts().dropped, (int64_t{1} << 48) + 2);
}

TEST_F(DatasetTest, AnEmptyDatasetIsRefused) {
  manifest_["sequences"] = 0;
  manifest_["tokens"] = 0;
  ExpectBad("the dataset is empty");
}

TEST_F(DatasetTest, AFileOfAnotherSizeIsNamed) {
  for (const char* name : {"tokens.u32", "labels.u8", "offsets.u64"}) {
    const std::string file = path_ + "/" + name;
    const std::string good = ReadTestFile(file);
    WriteTestFile(file, good.substr(0, good.size() - 1));
    ExpectBad(std::string(name) + ": is not the " +
              std::to_string(good.size()) + " bytes");
    WriteTestFile(file, good + "x");
    ExpectBad(name);
    std::filesystem::remove(file);
    ExpectBad(std::string(name) + ": No such file");
    WriteTestFile(file, good);
  }
  EXPECT_TRUE(Open().ok());
}

TEST_F(DatasetTest, OffsetsThatDoNotCutTheTokensAreRefused) {
  const std::vector<uint64_t> bad[] = {
      {0, 4, 4, 9},                // an empty sequence
      {0, 6, 4, 9},                // backwards
      {0, 4, 6, 10},               // beyond the end
      {0, 4, 6, 8},                // short of the end
      {1, 4, 6, 9},                // a token before the first
      {0, 1, 2, 9},                // longer than the longest
      {0, ~uint64_t{0}, 6, 9},     // wraps
      {~uint64_t{0} - 3, 4, 6, 9}  // wraps
  };
  for (const auto& offsets : bad) {
    Offsets(offsets);
    ExpectBad("offsets.u64");
  }
}

TEST_F(DatasetTest, ATokenOutsideTheVocabularyIsNamed) {
  Tokens({10, 11, 12, 13, 20, 100, 30, 31, 32});
  ExpectBad("token 100, the model's vocab_size is 100");
}

TEST_F(DatasetTest, MicroBatchesKeepTheOrderAndPadToTheirLongest) {
  const auto dataset = *Open();
  const auto cut = CutMicroBatches(*dataset, {1, 2, 0}, 2);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].rows, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(cut[0].row_tokens, 3);
  EXPECT_EQ(cut[1].rows, (std::vector<int64_t>{0}));
  EXPECT_EQ(cut[1].row_tokens, 4);
}

// Worked out apart from this code, by the algorithm in dataset.cc's comments.
TEST(BatchOrderTest, IsTheGoldenOrder) {
  BatchOrder order(10, 4, 42);
  EXPECT_EQ(order.steps_per_epoch(), 3);
  const std::vector<std::vector<int64_t>> golden = {
      {7, 5, 9, 0}, {2, 4, 6, 1}, {8, 3}, {4, 9, 1, 0}, {5, 6, 8, 2}, {7, 3}};
  for (size_t step = 0; step < golden.size(); ++step) {
    EXPECT_EQ(order.Batch(static_cast<int64_t>(step)), golden[step]) << step;
  }
}

TEST(BatchOrderTest, EveryEpochTakesEverySequenceOnce) {
  for (const int64_t sequences : {1, 2, 7, 64, 1000}) {
    for (const int64_t batch : {1, 3, 64}) {
      BatchOrder order(sequences, batch, 9);
      int64_t step = 0;
      for (int epoch = 0; epoch < 3; ++epoch) {
        std::set<int64_t> seen;
        for (int64_t i = 0; i < order.steps_per_epoch(); ++i, ++step) {
          const auto taken = order.Batch(step);
          const bool last = i + 1 == order.steps_per_epoch();
          const int64_t left = sequences - i * batch;
          EXPECT_EQ(static_cast<int64_t>(taken.size()), last ? left : batch);
          seen.insert(taken.begin(), taken.end());
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), sequences);
        EXPECT_EQ(*seen.begin(), 0);
        EXPECT_EQ(*seen.rbegin(), sequences - 1);
      }
    }
  }
}

TEST(BatchOrderTest, AStepDependsOnNothingButItsNumber) {
  BatchOrder forward(100, 7, 5), backward(100, 7, 5), other(100, 7, 6);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t step = 0; step < 40; ++step) {
    batches.push_back(forward.Batch(step));
  }
  for (int64_t step = 39; step >= 0; --step) {
    EXPECT_EQ(backward.Batch(step), batches[step]) << step;
  }
  EXPECT_NE(other.Batch(0), batches[0]);
  EXPECT_NE(batches[0], batches[15]);  // another epoch, another order
}

}  // namespace
}  // namespace roundhouse
