#include "server/weights/file_operation.h"

#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class FileOperationTest : public JobPartsTest {
 protected:
  std::unique_ptr<FileTable> Table(wire::FileOpKind kind) {
    const std::vector<FilePart> parts =
        kind == wire::FileOpKind::kInit
            ? InitParts(memory_->state())
            : TrainedFiles(SavedStateOf(memory_->state(), 0), root_)->parts;
    return *FileTable::Create(*arena_, kind, parts);
  }
};

TEST_F(FileOperationTest, OneFollowsAnotherFromWithinItsEnd) {
  Prepare("max_steps: 1");
  Allocate();
  std::vector<std::string> seen;
  std::unique_ptr<FileOperation> operation;
  operation = std::make_unique<FileOperation>(
      *files_line_, FileOperationOptions{3, 0}, [&] {
        seen.push_back(operation->running() ? "after, one runs" : "after");
        if (!operation->running()) End();
      });
  const uint64_t used = arena_->used_bytes();
  Run([&] {
    operation->Run(Table(wire::FileOpKind::kInit), [&](absl::Status first) {
      EXPECT_TRUE(first.ok()) << first;
      EXPECT_TRUE(operation->running());
      EXPECT_EQ(operation->table().op().kind, wire::FileOpKind::kInit);
      seen.push_back("first");
      operation->Run(Table(wire::FileOpKind::kSave), [&](absl::Status second) {
        EXPECT_TRUE(second.ok()) << second;
        EXPECT_EQ(operation->table().Sha256(0).size(), 64u);
        seen.push_back("second");
      });
    });
    EXPECT_TRUE(operation->running());
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"first", "after, one runs",
                                            "second", "after"}));
  EXPECT_EQ(arena_->used_bytes(), used) << "a table was kept";
}

TEST_F(FileOperationTest, OneThatFailsHasNoTableAnyMore) {
  Misbehave(kDevices + 1, "full");
  Prepare("max_steps: 1");
  Allocate();
  Run([&] {
    operation_->Run(Table(wire::FileOpKind::kSave), [&](absl::Status status) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_FALSE(operation_->running());
      End();
    });
  });
}

TEST_F(FileOperationTest, OneThatIsForgottenSaysNothing) {
  Prepare("max_steps: 1");
  Allocate();
  Run([&] {
    operation_->Run(Table(wire::FileOpKind::kInit),
                    [](absl::Status) { ADD_FAILURE() << "it was forgotten"; });
    operation_->Forget();
    EXPECT_FALSE(operation_->running());
    operation_->Run(Table(wire::FileOpKind::kInit),
                    [&](absl::Status) { End(); });
  });
}

}  // namespace
}  // namespace roundhouse
