#include "server/observe/user_series.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/observe/metrics.h"

namespace roundhouse {
namespace {

class UserSeriesTest : public testing::Test {
 protected:
  // By "name user state"; a series that is not there has none.
  std::map<std::string, double> Values() const {
    std::map<std::string, double> values;
    for (const auto& family : metrics_->Collect()) {
      if (family.name.rfind("roundhouse_user_", 0) != 0) continue;
      for (const auto& metric : family.metric) {
        std::map<std::string, std::string> labels;
        for (const auto& label : metric.label) labels[label.name] = label.value;
        const bool counter = family.type == prometheus::MetricType::Counter;
        values[absl::StrCat(family.name.substr(16), " ", labels["user"],
                            labels["state"].empty() ? "" : " ",
                            labels["state"])] =
            counter ? metric.counter.value : metric.gauge.value;
      }
    }
    return values;
  }

  const std::unique_ptr<ServerMetrics> metrics_ = ServerMetrics::Create();
  UserSeries& users_ = metrics_->users();
};

TEST_F(UserSeriesTest, AUserHasAllOrNone) {
  EXPECT_TRUE(Values().empty());
  users_.Set({{"anna", {.queued = 2}}}, 0);
  EXPECT_EQ(Values(),
            (std::map<std::string, double>{{"service_seconds_total anna", 0},
                                           {"service_lag_seconds anna", 0},
                                           {"jobs anna queued", 2},
                                           {"jobs anna backfill", 0},
                                           {"jobs anna running", 0}}));
  users_.AddService("anna", 0, 500'000'000);
  users_.AddService("anna", 0, -7);
  users_.Set({{"anna", {.running = 1, .backfill = 3, .lag_seconds = 4}}}, 0);
  EXPECT_EQ(Values()["service_seconds_total anna"], 0.5);
  EXPECT_EQ(Values()["service_lag_seconds anna"], 4);
  EXPECT_EQ(Values()["jobs anna queued"], 0);
  EXPECT_EQ(Values()["jobs anna backfill"], 3);
  // His jobs have ended.
  users_.Set({}, 1);
  EXPECT_EQ(Values()["service_seconds_total anna"], 0.5);
  EXPECT_EQ(Values()["service_lag_seconds anna"], 0);
  EXPECT_EQ(Values()["jobs anna running"], 0);
}

TEST_F(UserSeriesTest, TheyGoAnHourAfterHisLastJobOrSample) {
  const int64_t hour_ns = absl::ToInt64Nanoseconds(kUserSeriesKept);
  users_.Set({{"anna", {.running = 1}}, {"otto", {.running = 1}}}, 0);
  users_.AddService("otto", hour_ns / 2, 1);  // a sample
  users_.Set({}, hour_ns - 1);
  EXPECT_EQ(Values().size(), 10u);
  users_.Set({}, hour_ns);
  EXPECT_EQ(Values().size(), 5u);
  EXPECT_TRUE(Values().contains("service_lag_seconds otto"));
  users_.Set({}, hour_ns * 2);
  EXPECT_TRUE(Values().empty());
  users_.AddService("anna", hour_ns * 2, 1'000'000'000);
  EXPECT_EQ(Values()["service_seconds_total anna"], 1);
}

TEST_F(UserSeriesTest, TheOthersAreSummed) {
  std::map<std::string, UserSeries::User> users;
  for (size_t i = 0; i < kMaxUsersWithMetrics; ++i) {
    users[absl::StrCat("a", i)] = {.running = 1};
  }
  users_.Set(users, 0);
  EXPECT_EQ(Values().size(), kMaxUsersWithMetrics * 5);
  users["b"] = users["c"] = {.queued = 1, .running = 1, .lag_seconds = 2};
  users_.Set(users, 0);
  users_.AddService("b", 0, 1'000'000'000);
  users_.AddService("d", 0, 2'000'000'000);
  EXPECT_EQ(Values().size(), (kMaxUsersWithMetrics + 1) * 5);
  EXPECT_EQ(Values()["service_seconds_total other"], 3);
  EXPECT_EQ(Values()["service_lag_seconds other"], 4);
  EXPECT_EQ(Values()["jobs other running"], 2);
  // When there is room they have their own.
  const int64_t hour_ns = absl::ToInt64Nanoseconds(kUserSeriesKept);
  users_.Set({{"b", {.running = 1}}}, hour_ns);
  users_.Set({{"b", {.running = 1}}}, hour_ns + 1);
  EXPECT_EQ(Values()["jobs b running"], 1);
  EXPECT_EQ(Values()["jobs other running"], 0);
}

}  // namespace
}  // namespace roundhouse
