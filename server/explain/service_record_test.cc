#include "server/explain/service_record.h"

#include <cmath>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
const JobOwner kAnn = {"vision", "ann"};
const JobOwner kBob = {"vision", "bob"};

class ServiceRecordTest : public testing::Test {
 protected:
  // Each second of these each job gets so many devices.
  void Pass(int seconds, double ann, double bob) {
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecondNs;
      ann_ += static_cast<int64_t>(ann * kSecondNs);
      bob_ += static_cast<int64_t>(bob * kSecondNs);
      times_.compute_ns = ann_ + bob_;
      times_.bubble_ns += kSecondNs / 2;
      std::vector<ServiceRecord::Job> jobs = {
          {.id = "job-1", .owner = kAnn, .device_ns = ann_, .host_ns = now_}};
      if (bob > 0) {
        jobs.push_back({.id = "job-2", .owner = kBob, .device_ns = bob_});
      }
      record_.Add(now_, jobs, times_, 4, {});
    }
  }

  ServiceRecord record_;
  int64_t now_ = 77 * kSecondNs;
  int64_t ann_ = 0;
  int64_t bob_ = 0;
  DeviceTimes times_;
};

TEST_F(ServiceRecordTest, WhatWasServedInTheWindow) {
  EXPECT_EQ(record_.Of("job-1").window_seconds, 0);
  EXPECT_EQ(record_.WindowSeconds(), 0);
  Pass(101, 1, 0);
  Pass(20, 1, 2);
  const ServedJob ann = record_.Of("job-1");
  EXPECT_DOUBLE_EQ(ann.window_seconds, 120);
  EXPECT_DOUBLE_EQ(ann.device_seconds, 120);
  EXPECT_DOUBLE_EQ(ann.all_device_seconds, 160);
  EXPECT_DOUBLE_EQ(ann.host_seconds, 120);
  // Samples are kept every five seconds.
  const ServedJob bob = record_.Of("job-2");
  EXPECT_GE(bob.window_seconds, 15);
  EXPECT_LE(bob.window_seconds, 20);
  EXPECT_DOUBLE_EQ(bob.device_seconds, 2 * bob.window_seconds);
  EXPECT_EQ(record_.Of("job-3").window_seconds, 0);
  Pass(1000, 1, 2);
  EXPECT_NEAR(record_.Of("job-1").window_seconds, 300, 5);
  EXPECT_NEAR(record_.WindowSeconds(), 300, 5);
  EXPECT_NEAR(static_cast<double>(record_.Times().bubble_ns), 150e9, 3e9);
  // It has no steps now.
  Pass(1, 1, 0);
  EXPECT_EQ(record_.Of("job-2").window_seconds, 0);
}

TEST_F(ServiceRecordTest, WhoHasLessThanHisShareCanUseNoMore) {
  Pass(9, 1.5, 0);
  EXPECT_TRUE(std::isinf(record_.MostDevices("job-1")));
  Pass(3, 1.5, 0);
  EXPECT_NEAR(record_.MostDevices("job-1"), 1.5, 1e-9);
  // With another he has his half of four but for that: it stays known.
  Pass(30, 1.5, 2.5);
  EXPECT_NEAR(record_.MostDevices("job-1"), 1.5, 1e-9);
  // One who has more than his half says nothing of what he could use.
  EXPECT_TRUE(std::isinf(record_.MostDevices("job-2")));
  // He has more than he was thought to use: it is forgotten.
  Pass(30, 3.9, 0);
  EXPECT_TRUE(std::isinf(record_.MostDevices("job-1")));
  Pass(1, 1, 1);
  Pass(30, 1, 1);
  EXPECT_NEAR(record_.MostDevices("job-1"), 1, 0.1);
  record_.Forget("job-1");
  EXPECT_TRUE(std::isinf(record_.MostDevices("job-1")));
}

}  // namespace
}  // namespace roundhouse
