#include "tests/fakes/layer_costs.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse::fakes {
namespace {

constexpr char kHeader[] = "layer,forward_ms,recompute_ms,backward_ms\n";

TEST(LayerCostsTest, ScalesEachLayer) {
  const auto costs =
      ParseLayerCosts("# measured on nothing\n" + std::string(kHeader) +
                          "0,7.5,7.25,16\n\n1,0,0,0\n2,22,0,44.000001\n",
                      "costs.csv", 0.5);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(*costs, (std::vector<LayerCost>{{3'750'000, 3'625'000, 8'000'000},
                                            {0, 0, 0},
                                            {11'000'000, 0, 22'000'001}}));
}

struct BadFile {
  std::string text;
  std::string message;
};

class BadCostsTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadCostsTest, NamesTheLineAndTheField) {
  const auto costs = ParseLayerCosts(GetParam().text, "c.csv", 1);
  ASSERT_FALSE(costs.ok());
  EXPECT_EQ(costs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(costs.status().message()).find(GetParam().message),
            std::string::npos)
      << costs.status();
}

std::string File(const std::string& lines) { return kHeader + lines; }

INSTANTIATE_TEST_SUITE_P(
    Files, BadCostsTest,
    testing::Values(
        BadFile{"", "c.csv: a decoder layer and the head wanted"},
        BadFile{"0,1,1,1\n", "c.csv:1: the header layer,forward_ms"},
        BadFile{File("0,1,1,1\n"), "at least, 1 layers found"},
        BadFile{File("0,1,1\n"), "c.csv:2: 4 fields wanted, 3 found"},
        BadFile{File("0,1,1,1\n2,1,0,1\n"), "c.csv:3: layer: 1 wanted"},
        BadFile{File("0,x,1,1\n"), "c.csv:2: forward_ms: milliseconds"},
        BadFile{File("0,1,-1,1\n"), "c.csv:2: recompute_ms: milliseconds"},
        BadFile{File("0,1,1,nan\n"), "c.csv:2: backward_ms: milliseconds"},
        BadFile{File("0,1,1,1e9\n"), "c.csv:2: backward_ms: milliseconds"},
        BadFile{File("0,1,1,1\n1,1,1,1\n"), "the head is never recomputed"}));

TEST(LayerCostsTest, AFileThatIsNotThere) {
  EXPECT_EQ(ReadLayerCosts("/no/such/file", 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse::fakes
