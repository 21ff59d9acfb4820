#include "server/run/resumed_rows.h"

#include <map>

#include "gtest/gtest.h"
#include "server/dataset/dataset.h"

namespace roundhouse {
namespace {

constexpr int64_t kRows = 23;

// How often each row comes in steps `first` to before `end`.
std::map<int64_t, int64_t> Times(const RowOrder& how, int64_t first,
                                 int64_t end) {
  std::map<int64_t, int64_t> times;
  BatchOrder order(kRows, how.batch_size, how.seed);
  for (int64_t step = first; step < end; ++step) {
    for (const int64_t row : order.Batch(step)) ++times[row];
  }
  return times;
}

// What whole epochs of `now` would train on, less what is trained on really.
std::pair<int64_t, int64_t> Counted(int64_t steps, const RowOrder& before,
                                    const RowOrder& now) {
  const int64_t end =
      BatchOrder(kRows, now.batch_size, now.seed).steps_per_epoch() * 9;
  auto wanted = Times(now, 0, end);
  auto got = Times(before, 0, steps);
  for (const auto& [row, times] : Times(now, steps, end)) got[row] += times;
  std::pair<int64_t, int64_t> counted;
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t more = got[row] - wanted[row];
    (more > 0 ? counted.first : counted.second) += std::abs(more);
  }
  return counted;
}

TEST(ResumedRowsTest, CountsWhatIsTrainedOnOnceMoreAndOnceLess) {
  for (const RowOrder& before : {RowOrder{4, 1}, RowOrder{5, 2}}) {
    for (const RowOrder& now :
         {RowOrder{4, 1}, RowOrder{8, 1}, RowOrder{3, 1}, RowOrder{4, 2}}) {
      for (const int64_t steps : {0, 1, 2, 6, 7, 13}) {
        const ResumedRows found = CompareRows(kRows, steps, before, now);
        const auto [again, left_out] = Counted(steps, before, now);
        EXPECT_EQ(found.again, again) << now.batch_size << " " << steps;
        EXPECT_EQ(found.left_out, left_out) << now.batch_size << " " << steps;
      }
    }
  }
}

TEST(ResumedRowsTest, NoneInTheSameOrder) {
  const ResumedRows found = CompareRows(kRows, 7, {4, 1}, {4, 1});
  EXPECT_EQ(found.again, 0);
  EXPECT_EQ(found.left_out, 0);
}

TEST(ResumedRowsTest, ASmallerBatchTakesRowsAgainALargerOneLeavesThemOut) {
  const ResumedRows smaller = CompareRows(kRows, 2, {4, 1}, {2, 1});
  EXPECT_EQ(smaller.again, 4);
  EXPECT_EQ(smaller.left_out, 0);
  EXPECT_EQ(smaller.first_again.size(), 4u);
  const ResumedRows larger = CompareRows(kRows, 2, {4, 1}, {8, 1});
  EXPECT_EQ(larger.again, 0);
  EXPECT_EQ(larger.left_out, 8);
  EXPECT_EQ(larger.first_left_out.size(), kNamedRows);
  // A row that is named did not come, and will not in this epoch.
  const auto came = Times({4, 1}, 0, 2);
  const auto comes = Times({8, 1}, 2, 3);
  for (const int64_t row : larger.first_left_out) {
    EXPECT_FALSE(came.contains(row)) << row;
    EXPECT_FALSE(comes.contains(row)) << row;
  }
}

TEST(ResumedRowsTest, TheTextSaysHowManyWhereAndWhatToDo) {
  ResumedRows found{.again = 4};
  EXPECT_EQ(ResumedRowsText(found, 2, {4, 1}, {2, 1}, {3, 8}, {}),
            "has 2 steps with batch_size: 4 and seed: 1; this job, with "
            "batch_size: 2 and seed: 1, goes on with step 3 of its own order, "
            "where rows are trained on again 4 times (the first: lines 3, 8); "
            "say batch_size: 4 and seed: 1 to go on where it was");
  found = {.again = 1, .left_out = 2};
  EXPECT_NE(ResumedRowsText(found, 2, {4, 1}, {4, 2}, {}, {})
                .find("where rows are trained on again 1 time and are left "
                      "out 2 times; say"),
            std::string::npos);
}

}  // namespace
}  // namespace roundhouse
