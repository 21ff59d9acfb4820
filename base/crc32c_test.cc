#include "base/crc32c.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// RFC 3720, appendix B.4, and the check value of the usual catalogue.
TEST(Crc32cTest, KnownValues) {
  for (const auto& crc : {Crc32c, Crc32cByTable}) {
    EXPECT_EQ(crc(""), 0u);
    EXPECT_EQ(crc("123456789"), 0xe3069283u);
    EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
  }
}

TEST(Crc32cTest, TheInstructionAndTheTableAgree) {
  std::mt19937 random(7);
  for (size_t bytes : {1, 7, 8, 9, 15, 63, 1000, 65537}) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_EQ(Crc32c(text), Crc32cByTable(text)) << bytes;
    const uint32_t before = Crc32c(text);
    text[bytes / 2] ^= 1;
    EXPECT_NE(Crc32c(text), before) << bytes;
  }
}

}  // namespace
}  // namespace roundhouse
