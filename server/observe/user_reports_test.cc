#include "server/observe/user_reports.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Ann's job computes on both devices, Bob's waits, and a third has jobs in the
// queue only.
TEST(UserReportsTest, WhoHasWorkIsOwedWhatIsFair) {
  const auto metrics = ServerMetrics::Create();
  UserReports users(*metrics);
  const JobOwner ann = {"lab", "ann"}, bob = {"lab", "bob"};
  const ShareWeights weights = {.users = {{"bob", 3}}};
  const auto has = [&](const std::string& line) {
    return absl::StrContains(metrics->Render(), absl::StrCat(line, "\n"));
  };
  int64_t now_ns = 100 * kLagIntervalNs;
  const auto pass = [&](int seconds, const std::vector<JobOwner>& running) {
    for (int i = 0; i < seconds; ++i) {
      now_ns += kSecond;
      for (int device = 0; device < 2; ++device) {
        users.AddUse({.owner = ann, .device_ns = kSecond}, now_ns);
      }
      users.Publish({.queued = {{"lab", "cem"}},
                     .running = running,
                     .backfill = {{"lab", "dan"}},
                     .waiting = running,
                     .weights = weights},
                    now_ns);
    }
  };
  pass(100, {ann, bob, ann});
  EXPECT_TRUE(has("roundhouse_user_service_seconds_total{user=\"ann\"} 200"));
  EXPECT_TRUE(has("roundhouse_user_service_seconds_total{user=\"bob\"} 0"));
  EXPECT_TRUE(has("roundhouse_user_service_lag_seconds{user=\"bob\"} 150"))
      << metrics->Render();
  EXPECT_TRUE(has("roundhouse_user_service_lag_seconds{user=\"ann\"} -150"));
  EXPECT_TRUE(has("roundhouse_user_service_lag_seconds{user=\"cem\"} 0"));
  EXPECT_TRUE(has("roundhouse_user_jobs{state=\"running\",user=\"ann\"} 2"));
  EXPECT_TRUE(has("roundhouse_user_jobs{state=\"queued\",user=\"cem\"} 1"));
  // Nobody owes him anything, and no alert looks at his jobs.
  EXPECT_TRUE(has("roundhouse_user_jobs{state=\"backfill\",user=\"dan\"} 1"));
  EXPECT_TRUE(has("roundhouse_user_jobs{state=\"running\",user=\"dan\"} 0"));
  EXPECT_TRUE(has("roundhouse_user_service_lag_seconds{user=\"dan\"} 0"));
  // His job has ended: nothing is owed to who has no work.
  pass(1, {ann});
  EXPECT_TRUE(has("roundhouse_user_service_lag_seconds{user=\"bob\"} 0"));
}

}  // namespace
}  // namespace roundhouse
