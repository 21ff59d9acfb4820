#include "server/job/storage_reason.h"

#include "absl/strings/str_cat.h"
#include "base/files/open_limit.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(StorageReasonTest, EachFailureHasItsOwn) {
  EXPECT_EQ(StorageReason(absl::ResourceExhaustedError("full")),
            JobReason::kStorageFull);
  EXPECT_EQ(StorageReason(absl::UnavailableError("no memory")),
            JobReason::kHostMemory);
  EXPECT_EQ(StorageReason(absl::InternalError("EIO")),
            JobReason::kStorageError);
  // A dead mount is no want of memory.
  EXPECT_EQ(StorageReason(absl::UnavailableError(
                absl::StrCat("/mnt/x: ", OpenErrorText(kOpenHangs)))),
            JobReason::kStorageError);
}

}  // namespace
}  // namespace roundhouse
