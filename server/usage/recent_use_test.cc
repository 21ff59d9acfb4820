#include "server/usage/recent_use.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

const JobOwner kAnna = {"vision", "anna"};
const JobOwner kOtto = {"vision", "otto"};

TEST(RecentUseTest, HalfAsMuchAfterSevenDays) {
  RecentUse use;
  EXPECT_EQ(use.OfUser(kAnna), 0);
  use.Add(kAnna, 1000, 8);
  use.Add(kOtto, 1000 + kHalfLifeHours, 4);
  EXPECT_DOUBLE_EQ(use.OfUser(kAnna), use.OfUser(kOtto));
  use.Add(kOtto, 1000 + 2 * kHalfLifeHours, 1);
  EXPECT_DOUBLE_EQ(use.OfUser(kOtto), 1.5 * use.OfUser(kAnna));
  EXPECT_DOUBLE_EQ(use.OfProject("vision"), 2.5 * use.OfUser(kAnna));
  EXPECT_EQ(use.OfUser({"speech", "anna"}), 0);
  EXPECT_EQ(use.OfProject("speech"), 0);
}

TEST(RecentUseTest, AWeekHasItsHours) {
  RecentUse use;
  use.Add(kAnna, 1000, 8);
  use.Add(kAnna, 1001, 4);
  use.Add(kOtto, 1167, 2);
  const auto week = [&use](const JobOwner& owner) {
    const auto found = use.week_ns().find({owner.project, owner.user});
    return found == use.week_ns().end() ? 0 : found->second;
  };
  EXPECT_FALSE(use.GoTo(1167));
  EXPECT_EQ(week(kAnna), 12);
  EXPECT_TRUE(use.GoTo(1168));
  EXPECT_EQ(week(kAnna), 4);
  EXPECT_FALSE(use.GoTo(1160));
  EXPECT_TRUE(use.GoTo(1169));
  EXPECT_EQ(week(kAnna), 0);
  EXPECT_EQ(week(kOtto), 2);
  EXPECT_TRUE(use.GoTo(5000));
  EXPECT_TRUE(use.week_ns().empty());
}

TEST(RecentUseTest, AnyClockWillDo) {
  RecentUse use;
  use.Add(kAnna, 0, 1);
  for (const int64_t hour : {int64_t{-1} << 40, int64_t{1} << 40}) {
    use.Add(kAnna, hour, std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(std::isfinite(use.OfUser(kAnna)));
  }
}

}  // namespace
}  // namespace roundhouse
