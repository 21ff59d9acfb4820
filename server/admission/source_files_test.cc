#include "server/admission/source_files.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

SourceFiles Files() {
  return {
      {"/data", "/data/a", {7, 8, 9, -1}},
      {"/", "/b \"\xff", {1, 2, uint64_t{1} << 63, 1'700'000'000'000'000'001}}};
}

TEST(SourceFilesTest, TheyComeBackWithoutTheirDevice) {
  const auto back = SourceFilesFromJson(SourceFilesToJson({Files()[0]}));
  ASSERT_TRUE(back.ok()) << back.status();
  CheckedFile want = Files()[0];
  want.identity.device = 0;
  EXPECT_EQ(*back, SourceFiles{want});
  const auto large = SourceFilesFromJson(SourceFilesToJson(Files()));
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ((*large)[1].identity.size_bytes, uint64_t{1} << 63);
  EXPECT_EQ((*large)[1].identity.mtime_ns, 1'700'000'000'000'000'001);
  EXPECT_EQ(SourceFilesFromJson("")->size(), 0u);
}

TEST(SourceFilesTest, WhatIsNoListIsTold) {
  for (const char* text : {"{", "[1]", "[{\"root\": 1}]", "[{}]", "7x"}) {
    EXPECT_TRUE(absl::IsDataLoss(SourceFilesFromJson(text).status())) << text;
  }
}

TEST(SourceFilesTest, OnlyTheSameFilesAreUnchanged) {
  const SourceFiles then = {{"/data", "/data/a", {0, 8, 9, 1}}};
  EXPECT_TRUE(CheckUnchanged(then, {}).ok());
  EXPECT_TRUE(CheckUnchanged(then, {{"/", "/data/a", {5, 8, 9, 1}}}).ok());
  EXPECT_TRUE(CheckUnchanged({}, Files()).ok());
  for (const CheckedFile& now :
       {CheckedFile{"/data", "/data/a", {5, 7, 9, 1}},
        CheckedFile{"/data", "/data/a", {5, 8, 8, 1}},
        CheckedFile{"/data", "/data/a", {5, 8, 9, 2}}}) {
    const absl::Status status = CheckUnchanged(then, {now});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(absl::StrContains(status.message(), "/data/a: changed since"))
        << status;
  }
  const absl::Status came =
      CheckUnchanged(then, {{"/data", "/data/b", {5, 8, 9, 1}}});
  EXPECT_TRUE(absl::StrContains(came.message(), "/data/b: came since")) << came;
}

}  // namespace
}  // namespace roundhouse
