#include "server/spec/data_files.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class DataFilesTest : public testing::Test {
 protected:
  DataFilesTest()
      : top_(fs::canonical(testing::TempDir()).string() + "/data_files") {
    fs::remove_all(top_);
    fs::create_directories(top_ + "/data/d");
    roots_ = *DataRoots::Create({.roots = {top_ + "/data"}});
  }
  ~DataFilesTest() override { fs::remove_all(top_); }

  void Make(const Names& names) {
    for (const std::string& name : names) {
      std::ofstream(top_ + "/data/" + name) << "x";
    }
  }

  absl::StatusOr<Names> Find(const Names& names) {
    const PathResolver resolve = [this](const std::string& field,
                                        const std::string& path,
                                        PathKind kind) {
      return roots_->Resolve(field, path, kind, UsesEveryRoot);
    };
    return FindDataFiles(resolve, *roots_, "dataset", names);
  }

  // Below the root.
  Names Found(const Names& names) {
    const auto found = Find(names);
    EXPECT_TRUE(found.ok()) << found.status();
    Names below;
    for (const std::string& file : found.value_or(Names())) {
      below.push_back(
          fs::path(file).lexically_relative(top_ + "/data").string());
    }
    return below;
  }

  void ExpectRefused(const Names& names, const std::string& words) {
    const absl::Status status = Find(names).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(ErrorField(status), "dataset") << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  }

  const std::string top_;
  std::unique_ptr<DataRoots> roots_;
};

TEST_F(DataFilesTest, OneSeveralAndAbsoluteOnes) {
  Make({"b.jsonl", "a.jsonl", "d/c.anything"});
  EXPECT_EQ(Found({"a.jsonl"}), (Names{"a.jsonl"}));
  EXPECT_EQ(Found({"b.jsonl", top_ + "/data/a.jsonl", "d/c.anything"}),
            (Names{"b.jsonl", "a.jsonl", "d/c.anything"}));
  EXPECT_EQ(Found({}), Names());
  ExpectRefused({"a.jsonl", top_ + "/data/a.jsonl"}, "is named twice");
  ExpectRefused({"a.jsonl", "none.jsonl"},
                "\"none.jsonl\" does not exist under");
}

TEST_F(DataFilesTest, AFolderIsItsShardsInOrder) {
  Make({"d/part-10.jsonl.gz", "d/part-9.jsonl", "d/part-1.json",
        "d/part-11.csv.ZST", "d/x.tsv", "d/y.parquet", "d/z.ndjson",
        "d/README.md", "d/.hidden.jsonl", "d/_started.json",
        "d/dataset_info.json", "d/state.json"});
  fs::create_directory(top_ + "/data/d/sub");
  EXPECT_EQ(Found({"d"}), (Names{"d/part-1.json", "d/part-9.jsonl",
                                 "d/part-10.jsonl.gz", "d/part-11.csv.ZST",
                                 "d/x.tsv", "d/y.parquet", "d/z.ndjson"}));
  EXPECT_EQ(Found({"d/"}).size(), 7);
}

TEST_F(DataFilesTest, FoldersThatAreNone) {
  ExpectRefused({"d"}, "has no file whose name ends with .jsonl");
  Make({"d/data-00000-of-00001.arrow", "d/state.json"});
  ExpectRefused({"d"}, "datasets.load_from_disk(FOLDER).to_parquet(FILE)");
}

TEST_F(DataFilesTest, SplitsAreNotMixed) {
  Make({"d/train-0.parquet", "d/train-1.parquet", "d/test-0.parquet"});
  ExpectRefused({"d"},
                "files of several splits (test: test-0.parquet, train: "
                "train-0.parquet); name those that are meant, for instance "
                "d/train*, or each file");
  EXPECT_EQ(Found({"d/train*"}),
            (Names{"d/train-0.parquet", "d/train-1.parquet"}));
  fs::remove(top_ + "/data/d/test-0.parquet");
  EXPECT_EQ(Found({"d"}).size(), 2);
  Make({"d/trainers.jsonl"});  // another word
  EXPECT_EQ(Found({"d"}).size(), 3);
}

TEST_F(DataFilesTest, WhatWasWrittenIsAnswered) {
  Make({"train.jsonl", "test.jsonl", "d/train.jsonl", "d/test.jsonl"});
  ExpectRefused({"*.jsonl"}, "\"*.jsonl\" has files of several splits");
  ExpectRefused({"*.jsonl"}, "for instance train*, or");
  ExpectRefused({"d/*.jsonl"}, "\"d/*.jsonl\" has files of several splits");
  ExpectRefused({"d/*.jsonl"}, "for instance d/train*, or");
  ExpectRefused({"d"}, "for instance d/train*, or");
  ExpectRefused({"d/"}, "for instance d/train*, or");
}

TEST_F(DataFilesTest, AModelsFolderIsNoData) {
  Make({"d/config.json", "d/tokenizer.json"});
  ExpectRefused({"d"}, "\"d\" is a model's folder (config.json); name the");
}

TEST_F(DataFilesTest, PackedInEachWay) {
  Make({"d/a.jsonl.gz", "d/b.jsonl.zst", "d/c.jsonl.zstd"});
  EXPECT_EQ(Found({"d"}),
            (Names{"d/a.jsonl.gz", "d/b.jsonl.zst", "d/c.jsonl.zstd"}));
}

TEST_F(DataFilesTest, TheSplitIsAnyWordOfTheName) {
  Make({"d/alpaca_Train.jsonl", "d/alpaca_test.jsonl"});
  ExpectRefused({"d"},
                "test: alpaca_test.jsonl, train: alpaca_Train.jsonl); "
                "name those that are meant, for instance d/*Train*");
  EXPECT_EQ(Found({"d/*Train*"}), (Names{"d/alpaca_Train.jsonl"}));
  EXPECT_EQ(Found({"d/alpaca_test.jsonl", "d/alpaca_Train.jsonl"}).size(), 2);
  fs::remove(top_ + "/data/d/alpaca_test.jsonl");
  Make({"d/more.jsonl"});  // beside a train split it may be more of it
  EXPECT_EQ(Found({"d"}).size(), 2);
  fs::remove(top_ + "/data/d/alpaca_Train.jsonl");
  for (const std::string& other :
       Names{"a.test.jsonl", "2024-dev-1.jsonl", "x-VAL.csv", "set1valid2.json",
             "eval.tsv", "validation.parquet"}) {
    Make({"d/" + other});
    ExpectRefused({"d"}, "files of several splits (none: more.jsonl, ");
    ExpectRefused({"d"}, other +
                             "); name those that are meant, for instance "
                             "d/more.jsonl, or each file");
    fs::remove(top_ + "/data/d/" + other);
  }
  // Other words, and names that say both.
  Make({"d/latest.jsonl", "d/value_1.jsonl", "d/devices.jsonl",
        "d/train_test_split.jsonl", "d/medieval.jsonl"});
  EXPECT_EQ(Found({"d"}).size(), 6);
}

TEST_F(DataFilesTest, ALinkKeepsItsName) {
  fs::create_directory(top_ + "/blobs");
  roots_ = *DataRoots::Create({.roots = {top_ + "/data", top_ + "/blobs"}});
  std::ofstream(top_ + "/blobs/0a1b") << "x";
  fs::create_symlink(top_ + "/blobs/0a1b", top_ + "/data/d/a.csv");
  EXPECT_EQ(Found({"d/a.csv"}), (Names{"d/a.csv"}));
  EXPECT_EQ(Found({"d"}), (Names{"d/a.csv"}));
  ExpectRefused({"d/a.csv", "0a1b"}, "\"0a1b\" is named twice");
}

TEST_F(DataFilesTest, OneFileUnderTwoNamesIsNamedTwice) {
  fs::create_directory(top_ + "/data/e");
  Make({"d/a.jsonl", "e/a.jsonl"});
  fs::create_symlink("a.jsonl", top_ + "/data/d/latest.jsonl");
  fs::create_hard_link(top_ + "/data/e/a.jsonl", top_ + "/data/e/b.jsonl");
  ExpectRefused({"d"}, "is named twice");
  ExpectRefused({"e"}, "is named twice");
  EXPECT_EQ(Found({"d/latest.jsonl", "e/b.jsonl"}),
            (Names{"d/latest.jsonl", "e/b.jsonl"}));
}

// Equal shards of an upload are one file on disk.
TEST_F(DataFilesTest, EqualFilesOfUploadsAreSeveral) {
  const std::string id = "uploads/versions/" + std::string(32, '7') + "/";
  fs::create_directories(top_ + "/data/" + id);
  fs::create_directories(top_ + "/data/uploads/versions/mine/");
  for (const std::string& folder :
       {id, std::string("uploads/versions/mine/")}) {
    Make({folder + "a.jsonl"});
    fs::create_hard_link(top_ + "/data/" + folder + "a.jsonl",
                         top_ + "/data/" + folder + "b.jsonl");
  }
  EXPECT_EQ(Found({id}), (Names{id + "a.jsonl", id + "b.jsonl"}));
  ExpectRefused({id, id + "b.jsonl"}, "is named twice");
  ExpectRefused({"uploads/versions/mine"}, "is named twice");
}

TEST_F(DataFilesTest, Patterns) {
  Make({"d/a1.jsonl", "d/a12.jsonl", "d/a2.jsonl", "d/b.jsonl", "d/.a.jsonl",
        "d/[x].jsonl", "top.jsonl"});
  EXPECT_EQ(Found({"d/a*"}),
            (Names{"d/a1.jsonl", "d/a2.jsonl", "d/a12.jsonl"}));
  EXPECT_EQ(Found({"d/a?.jsonl", "d/[b-c]*"}),
            (Names{"d/a1.jsonl", "d/a2.jsonl", "d/b.jsonl"}));
  EXPECT_EQ(Found({"d/[x].jsonl"}), (Names{"d/[x].jsonl"}));  // its name
  EXPECT_EQ(Found({"*.jsonl"}), (Names{"top.jsonl"}));
  EXPECT_EQ(Found({top_ + "/data/d/b*"}), (Names{"d/b.jsonl"}));
  ExpectRefused({"d/q*"}, "\"d/q*\" matches no file in");
  ExpectRefused({"*/x*"}, "\"*/x*\" has a pattern in a folder's name");
  ExpectRefused({"d/*/x*"}, "\"d/*/x*\" has a pattern in a folder's name");
  ExpectRefused({"d/*/x"}, "\"d/*/x\" has a pattern in a folder's name");
  ExpectRefused({"*/a1.jsonl"}, "only the last part of a path may be one");
  ExpectRefused({"none/*"}, "\"none\" does not exist under the data roots");
}

TEST_F(DataFilesTest, WhatLeadsOutIsRefusedAsAnyFile) {
  std::ofstream(top_ + "/secret.jsonl") << "x";
  fs::create_symlink(top_ + "/secret.jsonl", top_ + "/data/d/a.jsonl");
  ExpectRefused({"d"}, "leads out of the data roots");
  ExpectRefused({"d/*"}, "leads out of the data roots");
  ExpectRefused({top_ + "/*"}, "is outside the data roots");
}

TEST_F(DataFilesTest, TooMany) {
  Names names;
  for (size_t i = 0; i <= kMaxDataFiles; ++i) {
    names.push_back(absl::StrCat("d/", i, ".jsonl"));
  }
  Make(names);
  ExpectRefused({"d"}, "129 files; at most 128");
  fs::remove(top_ + "/data/d/0.jsonl");
  EXPECT_EQ(Found({"d"}).size(), kMaxDataFiles);
  fs::remove_all(top_ + "/data/d");
  fs::create_directory(top_ + "/data/d");
  names.clear();
  for (int i = 100; i < 220; ++i) {
    names.push_back(absl::StrCat("d/", std::string(240, 'n'), i, ".jsonl"));
  }
  names.resize(119);
  Make(names);
  const std::string deep = std::string(180, 'm');
  fs::create_directory(top_ + "/data/" + deep);
  fs::rename(top_ + "/data/d", top_ + "/data/" + deep + "/d");
  ExpectRefused({deep + "/d"}, "bytes together; at most 49152");
}

TEST(ComesBeforeTest, DigitsAreNumbers) {
  const Names sorted = {"",    "a",    "a1",  "a01", "a2",
                        "a10", "a10b", "ab1", "b",   "b99999999999999999999"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) {
      if (sorted[i] + sorted[j] == "a1a01" ||
          sorted[i] + sorted[j] == "a01a1") {
        continue;
      }
      EXPECT_EQ(ComesBefore(sorted[i], sorted[j]), i < j)
          << sorted[i] << " " << sorted[j];
    }
  }
  EXPECT_NE(ComesBefore("a1", "a01"), ComesBefore("a01", "a1"));
}

}  // namespace
}  // namespace roundhouse
