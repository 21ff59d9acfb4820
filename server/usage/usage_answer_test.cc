#include "server/usage/usage_answer.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/store/store.h"
#include "server/testing/fresh_store.h"
#include "server/usage/usage_table.h"

namespace roundhouse {
namespace {

constexpr int64_t kNow = 500'000;  // the hour
constexpr int64_t kHourNs = int64_t{3'600} * 1'000'000'000;
constexpr int64_t kGibHour = 1'024 * 3'600;

class UsageAnswerTest : public testing::Test {
 protected:
  UsageAnswerTest() { store_ = *JobStore::Open({.path = FreshStorePath()}); }

  void Write(const UsageRows& rows) {
    ASSERT_TRUE(WriteUsage(*store_, rows).ok());
  }
  absl::StatusOr<v1::GetUsageResponse> Ask(const v1::GetUsageRequest& request) {
    return UsageAnswer(*store_, request,
                       absl::FromUnixSeconds(kNow * 3'600 + 1'800));
  }
  // A line for each.
  std::string Text(v1::UsageSubject by, int64_t hours_ago = -1) {
    v1::GetUsageRequest request;
    request.set_by(by);
    if (hours_ago >= 0) {
      request.mutable_since()->set_seconds((kNow - hours_ago) * 3'600 + 1);
    }
    const auto answer = Ask(request);
    if (!answer.ok()) return std::string(answer.status().message());
    std::string text;
    for (const v1::Usage& usage : answer->usage()) {
      absl::StrAppend(&text, usage.user(), "|", usage.project(), "|",
                      usage.job(), " ", usage.device_hours(), " ",
                      usage.host_gib_hours(), " ", usage.device_share(), "\n");
    }
    return text;
  }

  std::unique_ptr<JobStore> store_;
};

TEST_F(UsageAnswerTest, ByUserProjectAndJobTheMostFirst) {
  EXPECT_EQ(Text(v1::USAGE_BY_USER), "");
  Write({{{kNow - 300, 3, "vision", "anna", 1}, {8 * kHourNs, 0}},
         {{kNow - 168, 3, "vision", "anna", 1}, {kHourNs, kGibHour}},
         {{kNow, 3, "vision", "anna", 1}, {kHourNs, 0}},
         {{kNow, 3, "vision", "anna", 2}, {kHourNs, 0}},
         {{kNow, 4, "speech", "anna", 2}, {kHourNs / 2, 0}},
         {{kNow, 5, "vision", "otto", 2}, {4 * kHourNs, 2 * kGibHour}},
         {{kNow, 0, "vision", "otto", 2}, {kHourNs / 2, 0}}});
  EXPECT_EQ(Text(v1::USAGE_BY_USER),
            "otto|| 4.5 2 0.5625\n"
            "anna|| 3.5 1 0.4375\n");
  EXPECT_EQ(Text(v1::USAGE_BY_PROJECT),
            "|vision| 7.5 3 0.9375\n"
            "|speech| 0.5 0 0.0625\n");
  EXPECT_EQ(Text(v1::USAGE_BY_JOB),
            "otto|vision|job-5 4 2 0.5\n"
            "anna|vision|job-3 3 1 0.375\n"
            "anna|speech|job-4 0.5 0 0.0625\n"
            "otto|vision| 0.5 0 0.0625\n");
  EXPECT_EQ(Text(v1::USAGE_BY_PROJECT, 0),
            "|vision| 6.5 2 0.928571\n"
            "|speech| 0.5 0 0.0714286\n");
  EXPECT_EQ(Text(v1::USAGE_BY_USER, 300),
            "anna|| 11.5 1 0.71875\n"
            "otto|| 4.5 2 0.28125\n");
}

TEST_F(UsageAnswerTest, ItIsBoundedAndSaysWhatIsLeftOut) {
  UsageRows rows;
  for (int64_t job = 1; job <= kMaxUsageAnswer + 7; ++job) {
    rows[{kNow, job, "vision", "anna", 1}] = {kHourNs * job, 0};
  }
  rows[{kNow, 1, "speech", "otto", 1}] = {std::numeric_limits<int64_t>::max(),
                                          std::numeric_limits<int64_t>::max()};
  rows[{kNow, 2, "speech", "otto", 1}] = {std::numeric_limits<int64_t>::max(),
                                          std::numeric_limits<int64_t>::max()};
  Write(rows);
  v1::GetUsageRequest request;
  request.set_by(v1::USAGE_BY_JOB);
  const auto answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->usage_size(), kMaxUsageAnswer);
  EXPECT_EQ(answer->left_out(), 9);
  EXPECT_EQ(answer->usage(2).job(), absl::StrCat("job-", kMaxUsageAnswer + 7));
  EXPECT_GT(answer->device_hours(), 5e6);
  EXPECT_EQ(answer->since().seconds(), (kNow - 168) * 3'600);
}

TEST_F(UsageAnswerTest, WhateverIsAskedIsAnswered) {
  v1::GetUsageRequest request;
  for (const int64_t seconds : {std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()}) {
    request.mutable_since()->set_seconds(seconds);
    EXPECT_TRUE(Ask(request).ok());
  }
  request.set_by(static_cast<v1::UsageSubject>(3));
  EXPECT_EQ(ErrorField(Ask(request).status()), "by");
}

}  // namespace
}  // namespace roundhouse
