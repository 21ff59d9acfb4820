#include "server/weights/output_files.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class OutputFilesTest : public testing::Test {
 protected:
  OutputFilesTest() {
    state_ = fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(state_);
    output_ = state_ / "outputs/job-1";
    fs::create_directories(output_ / "sub");
    Write("outputs/job-1/model.safetensors", std::string(3 << 20, 'x') + "end");
    Write("outputs/job-1/sub/a", "abc");
    Write("secret", "s");
    files_ = std::make_unique<OutputFiles>(state_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(state_ / name) << text;
  }
  OutputFile Find(const std::string& name) {
    const auto files = files_->List(output_);
    for (const OutputFile& file : *files) {
      if (file.name == name) return file;
    }
    return {.name = name};
  }

  fs::path state_, output_;
  std::unique_ptr<OutputFiles> files_;
};

TEST_F(OutputFilesTest, FilesAreListedReadAndHashed) {
  Write("outputs/job-1/.hidden", "x");
  const auto files = files_->List(output_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  const OutputFile& model = files->at(0);
  EXPECT_EQ(model.name, "model.safetensors");
  EXPECT_EQ(model.bytes, (3u << 20) + 3);
  EXPECT_EQ(files->at(1).name, "sub/a");
  EXPECT_EQ(files_->Read(output_, model, 0)->size(), kOutputChunkBytes);
  EXPECT_EQ(*files_->Read(output_, model, 3 << 20), "end");
  EXPECT_EQ(*files_->Read(output_, model, 9 << 20), "");
  const auto hash = files_->Hash(output_, model);
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->sha256, Sha256Of(std::string(3 << 20, 'x') + "end"));
}

TEST_F(OutputFilesTest, AHashIsComputedInPieces) {
  fs::resize_file(output_ / "model.safetensors", 2 * kHashSliceBytes);
  const OutputFile file = Find("model.safetensors");
  EXPECT_EQ(files_->Hash(output_, file)->hashed_bytes, kHashSliceBytes);
  EXPECT_EQ(files_->Hash(output_, file)->sha256, "");
  const auto last = files_->Hash(output_, file);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->sha256,
            HashFile(kOutputText, output_ / "model.safetensors")->sha256);
}

// Somebody with many downloads makes nobody else's begin again.
TEST_F(OutputFilesTest, HalfHashesAreSharedAmongCallers) {
  constexpr uint64_t kSlice = 2 << 20;
  files_ = std::make_unique<OutputFiles>(state_, kSlice);
  std::vector<OutputFile> many;
  for (size_t i = 0; i <= kMaxHashesEach; ++i) {
    const std::string name = "large" + std::to_string(i);
    Write("outputs/job-1/" + name, "");
    fs::resize_file(output_ / name, 4 * kSlice);
    many.push_back(Find(name));
  }
  const auto hashed = [&](size_t i, const std::string& caller) {
    return files_->Hash(output_, many[i], caller)->hashed_bytes;
  };
  EXPECT_EQ(hashed(0, "anna"), kSlice);
  for (size_t i = 0; i < many.size(); ++i) {
    EXPECT_EQ(hashed(i, "otto"), kSlice);
  }
  EXPECT_EQ(hashed(0, "anna"), 2 * kSlice);
  EXPECT_EQ(hashed(1, "otto"), 2 * kSlice);
  EXPECT_EQ(hashed(0, "otto"), kSlice);  // his own oldest went
  // Whoever has most loses where all together have too many.
  for (size_t i = 0; i < kMaxHashesKept; ++i) {
    hashed(0, "user" + std::to_string(i));
  }
  EXPECT_EQ(hashed(0, "user0"), 2 * kSlice);
}

TEST_F(OutputFilesTest, WhatChangedIsNotMixed) {
  const OutputFile file = Find("sub/a");
  Write("outputs/job-1/sub/a", "abcd");
  EXPECT_TRUE(
      absl::IsFailedPrecondition(files_->Read(output_, file, 0).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(files_->Hash(output_, file).status()));
}

TEST_F(OutputFilesTest, NothingElseIsReached) {
  fs::create_symlink(state_ / "secret", output_ / "link");
  fs::create_directory_symlink(state_, state_ / "outputs/job-2");
  EXPECT_EQ(files_->List(output_)->size(), 2u);
  OutputFile file = Find("sub/a");
  for (const char* name : {"../../secret", "link", "/etc/passwd", "", "sub"}) {
    file.name = name;
    EXPECT_FALSE(files_->Read(output_, file, 0).ok()) << name;
  }
  for (const fs::path& directory :
       {state_, state_ / "outputs", state_ / "outputs/../..",
        state_ / "outputs/job-2", fs::path("/etc"), fs::path("")}) {
    EXPECT_FALSE(files_->List(directory).ok()) << directory;
  }
  EXPECT_TRUE(absl::IsNotFound(files_->List(state_ / "outputs/none").status()));
}

}  // namespace
}  // namespace roundhouse
