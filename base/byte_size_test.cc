#include "base/byte_size.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(ByteSizeTest, WithAndWithoutAUnit) {
  EXPECT_EQ(*ParseByteSize("1"), 1);
  EXPECT_EQ(*ParseByteSize("800GiB"), int64_t{800} << 30);
  EXPECT_EQ(*ParseByteSize("1.5TB"), 1'500'000'000'000);
  EXPECT_EQ(*ParseByteSize("3KiB"), 3072);
  EXPECT_EQ(*ParseByteSize("2MB"), 2'000'000);
  EXPECT_EQ(*ParseByteSize("1KiB"), 1024);
  EXPECT_EQ(*ParseByteSize("1.5KiB"), 1536);
  EXPECT_EQ(*ParseByteSize("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(*ParseByteSize("3KB"), 3000);
  EXPECT_EQ(*ParseByteSize("1GB"), 1'000'000'000);
  EXPECT_EQ(*ParseByteSize("2.3GB"), 2'300'000'000);
}

TEST(ByteSizeTest, OtherTextIsRefused) {
  for (const char* bad : {"", "GiB", "-1GiB", "0", "nan", "inf", "8 gib",
                          "8GB8", "1e9TiB", "0.5", "1XiB"}) {
    const auto bytes = ParseByteSize(bad);
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace roundhouse
