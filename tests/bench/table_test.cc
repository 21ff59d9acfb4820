#include "tests/bench/table.h"

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

const std::vector<Quantity>& Quantities() {
  static const auto& quantities = *new std::vector<Quantity>{
      {"dispatch p50", "us", {12.5, 10, 20}}, {"share", "%", {50}}};
  return quantities;
}

TEST(TableTest, Markdown) {
  EXPECT_EQ(MarkdownTable(Quantities()),
            "| quantity | unit | median | least | greatest | runs |\n"
            "|---|---|---|---|---|---|\n"
            "| dispatch p50 | us | 12.5 | 10 | 20 | 3 |\n"
            "| share | % | 50 | 50 | 50 | 1 |\n");
}

TEST(TableTest, Csv) {
  EXPECT_EQ(CsvTable(Quantities()),
            "quantity,unit,median,least,greatest,runs\n"
            "dispatch p50,us,12.5,10,20,3\n"
            "share,%,50,50,50,1\n");
}

TEST(TableTest, CsvQuotesANameThatHasACommaOrAQuote) {
  EXPECT_EQ(
      CsvTable({{"cpu:4, width 1: step", "ms", {1}}, {"a \"b\"", "%", {2}}}),
      "quantity,unit,median,least,greatest,runs\n"
      "\"cpu:4, width 1: step\",ms,1,1,1,1\n"
      "\"a \"\"b\"\"\",%,2,2,2,1\n");
}

}  // namespace
}  // namespace roundhouse::bench
