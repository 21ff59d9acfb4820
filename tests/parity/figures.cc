#include "tests/parity/figures.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace roundhouse::parity {
namespace {

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

}  // namespace

void Check(const std::string& what, double figure, double limit, double own) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::printf("%-40s %-58s %.2e  limit %.2e", test->name(), what.c_str(),
              figure, limit);
  if (!std::isnan(own)) std::printf("  own %.2e", own);
  std::printf("\n");
  std::fflush(stdout);  // whatever becomes of the program
  EXPECT_LE(figure, limit) << what;
}

double Relative(const std::vector<float>& value,
                const std::vector<float>& reference) {
  EXPECT_EQ(value.size(), reference.size());
  EXPECT_GT(Norm(reference), 0);
  std::vector<float> difference(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    difference[i] = value[i] - reference[i];
  }
  return Norm(difference) / Norm(reference);
}

}  // namespace roundhouse::parity
