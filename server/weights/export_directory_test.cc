#include "server/weights/export_directory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/paths.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class ExportDirectoryTest : public testing::Test {
 protected:
  ExportDirectoryTest()
      : top_(fs::canonical(testing::TempDir()) / "export_directory") {
    fs::remove_all(top_);
    fs::create_directories(top_ / "root/folder");
    fs::create_directories(top_ / "outside");
    WriteTestFile(top_ / "root/tokenizer.json", "{}");
    roots_ = *DataRoots::Create({.roots = {top_ / "root"}});
  }
  ~ExportDirectoryTest() override { fs::remove_all(top_); }

  std::string Temporary() const {
    return top_ / "root/folder" / absl::StrCat(kExportTemporaryPrefix, "x");
  }
  std::unique_ptr<ExportDirectory> Make() const {
    auto made = ExportDirectory::Make(*roots_, Temporary(), 100);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // What lies below `folder`, by name.
  static std::vector<std::string> Below(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      names.push_back(fs::relative(entry.path(), folder).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const fs::path top_;
  std::unique_ptr<DataRoots> roots_;
};

using Names = std::vector<std::string>;

TEST_F(ExportDirectoryTest, ChatTemplatesHaveTheirFolder) {
  const CheckedFile source =
      roots_->Open(top_ / "root/tokenizer.json")->checked();
  {
    const auto given_up = Make();
    EXPECT_TRUE(
        given_up->Copy(source, "additional_chat_templates/a.jinja").ok());
    EXPECT_FALSE(given_up->Copy(source, "other/a.jinja").ok());
  }
  EXPECT_EQ(Below(top_ / "root/folder"), Names{});
  const auto made = Make();
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(made->Copy(source, absl::StrCat("additional_chat_templates/",
                                                name, ".jinja"))
                    .ok());
  }
  ASSERT_TRUE(made->Finish("out").ok());
  EXPECT_EQ(Below(top_ / "root/folder"),
            (Names{"out", "out/additional_chat_templates",
                   "out/additional_chat_templates/a.jinja",
                   "out/additional_chat_templates/b.jinja"}));
}

TEST_F(ExportDirectoryTest, WhatIsWrittenIsThereUnderItsName) {
  const auto made = Make();
  const auto file = made->Create("weights", "HEAD");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->root, (top_ / "root").string());
  EXPECT_EQ(file->path, Temporary() + "/weights");
  const auto writing = OpenForWriting(*file);
  ASSERT_TRUE(writing.ok()) << writing.status();
  EXPECT_EQ(*made->SizeOf("weights"), 4u);
  ASSERT_TRUE(made->Write("config.json", "{}").ok());
  ASSERT_TRUE(made->Copy(roots_->Open(top_ / "root/tokenizer.json")->checked(),
                         "tokenizer.json")
                  .ok());
  ASSERT_TRUE(made->Finish("out").ok());
  EXPECT_EQ(
      Below(top_ / "root/folder"),
      (Names{"out", "out/config.json", "out/tokenizer.json", "out/weights"}));
}

TEST_F(ExportDirectoryTest, WithoutAnEndNothingStays) {
  Make()->Create("weights", "HEAD").IgnoreError();
  EXPECT_EQ(Below(top_ / "root/folder"), Names{});
  const auto made = Make();
  fs::create_directory(top_ / "root/folder/out");
  EXPECT_EQ(made->Finish("out").code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ExportDirectoryTest, ADiskThatIsTooSmallIsToldAtOnce) {
  const auto made =
      ExportDirectory::Make(*roots_, Temporary(), uint64_t{1} << 60);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Below(top_ / "root/folder"), Names{});
}

TEST_F(ExportDirectoryTest, AFolderOutsideIsRefused) {
  fs::create_directory_symlink(top_ / "outside", top_ / "root/way");
  const auto made = ExportDirectory::Make(
      *roots_, top_ / "root/way" / absl::StrCat(kExportTemporaryPrefix, "x"),
      1);
  EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
  EXPECT_EQ(Below(top_ / "outside"), Names{});
}

// At every moment the folder, or the directory in it, becomes a link that leads
// out.
TEST_F(ExportDirectoryTest, SwapsLeadNothingOut) {
  const fs::path folder = top_ / "root/folder";
  const std::vector<std::function<void()>> swaps = {
      [&] {
        fs::rename(folder, top_ / "root/away");
        fs::create_directory_symlink(top_ / "outside", folder);
      },
      [&] {
        fs::rename(Temporary(), folder / "away");
        fs::create_directory_symlink(top_ / "outside", Temporary());
      }};
  for (size_t swap = 0; swap < swaps.size(); ++swap) {
    for (int moment = 0; moment < 4; ++moment) {
      fs::remove_all(top_ / "root");
      fs::create_directories(folder);
      WriteTestFile(top_ / "root/tokenizer.json", "{}");
      roots_ = *DataRoots::Create({.roots = {top_ / "root"}});
      auto made = Make();
      const CheckedFile source =
          roots_->Open(top_ / "root/tokenizer.json")->checked();
      const auto step = [&](int when, const auto& work) {
        if (when == moment) swaps[swap]();
        return work();
      };
      const auto file =
          step(0, [&] { return made->Create("weights", "HEAD"); });
      const bool opened = step(1, [&] { return OpenForWriting(*file).ok(); });
      EXPECT_EQ(opened, moment > 1);
      step(2, [&] {
        return made->Copy(source, "tokenizer.json");
      }).IgnoreError();
      const absl::Status end = step(3, [&] { return made->Finish("out"); });
      EXPECT_EQ(end.ok(), swap == 0) << end;
      made.reset();
      EXPECT_EQ(Below(top_ / "outside"), Names{});
    }
  }
}

TEST_F(ExportDirectoryTest, OnlyOnesOwnLeftoversAreRemoved) {
  fs::create_directories(Temporary());
  WriteTestFile(Temporary() + "/weights", "HEAD");
  fs::create_directories(top_ / "root/mine");
  WriteTestFile(top_ / "outside/weights", "HEAD");
  EXPECT_TRUE(
      ExportDirectory::RemoveLeftover(*roots_, top_ / "root/mine").ok());
  EXPECT_TRUE(ExportDirectory::RemoveLeftover(*roots_, Temporary()).ok());
  EXPECT_TRUE(ExportDirectory::RemoveLeftover(*roots_, Temporary()).ok());
  EXPECT_EQ(Below(top_ / "root"), (Names{"folder", "mine", "tokenizer.json"}));
  fs::create_directory_symlink(top_ / "outside", Temporary());
  EXPECT_TRUE(ExportDirectory::RemoveLeftover(*roots_, Temporary()).ok());
  EXPECT_EQ(Below(top_ / "outside"), Names{"weights"});
}

}  // namespace
}  // namespace roundhouse
