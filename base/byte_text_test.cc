#include "base/byte_text.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(ByteTextTest, TheNumberAndItsSize) {
  EXPECT_EQ(ByteText(0), "0 bytes");
  EXPECT_EQ(ByteText(1023), "1023 bytes");
  EXPECT_EQ(ByteText(1024), "1024 bytes (1.0 KiB)");
  EXPECT_EQ(ByteText(3 << 20), "3145728 bytes (3.0 MiB)");
  EXPECT_EQ(ByteText(uint64_t{3} << 29), "1610612736 bytes (1.5 GiB)");
  EXPECT_EQ(ByteText(std::numeric_limits<uint64_t>::max()),
            "18446744073709551615 bytes (16384.0 PiB)");
}

}  // namespace
}  // namespace roundhouse
