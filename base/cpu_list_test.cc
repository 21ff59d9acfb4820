#include "base/cpu_list.h"

#include <cstdlib>
#include <fstream>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using Numbers = std::vector<int>;

TEST(CpuListTest, NumbersAndRanges) {
  EXPECT_EQ(*ParseCpuList("0\n"), Numbers{0});
  EXPECT_EQ(*ParseCpuList("0-3,8,10-11\n"), (Numbers{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(*ParseCpuList("\n"), Numbers{});  // of a node without CPUs
  EXPECT_EQ(ParseCpuList("0-8191")->size(), 8192u);
}

TEST(CpuListTest, OtherFormsAreRefused) {
  for (const char* text : {"x", "1-", "-1", "1-2-3", "3-1", "1,,2", "1,0",
                           "0-2,2", "8192", "99999999999", "1 2"}) {
    EXPECT_EQ(ParseCpuList(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(CpuListTest, AFile) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/list";
  std::ofstream(path) << "4-5\n";
  EXPECT_EQ(*ReadCpuList(path), (Numbers{4, 5}));
  EXPECT_EQ(ReadCpuList(path + "x").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse
