// How users share the devices of a whole daemon, in virtual time.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/usage/usage_book.h"
#include "server/usage/usage_table.h"
#include "tests/sim/sharing_test_fixture.h"

namespace roundhouse::sim {
namespace {

using SharesTest = SharingTest;

// Jobs of lengths that differ by up to sixteen times, and so many that each
// user has a slot that can go whenever a device is free.
TEST_F(SharesTest, UsersWithAnyNumberOfJobsShareByWeight) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const int devices = static_cast<int>(1 + random() % 4);
    const bool equal = seed % 2 == 0;
    const uint64_t users = equal ? 2 + random() % 2 : 2;
    StartServer(devices, seed);
    ShareWeights weights;
    double all = 0;
    for (uint64_t user = 0; user < users; ++user) {
      const std::string name = absl::StrCat("user", user);
      const uint64_t weight = equal || user == 0 ? 1 : 2 + random() % 2;
      weights.users[name] = static_cast<double>(weight);
      all += weights.users[name];
      for (uint64_t left = weight * (3 + random() % 2); left > 0; --left) {
        Submit(name);
      }
    }
    server_->engine().SetSharing({.weights = weights});
    Pass(absl::Seconds(30));  // all run
    computed_.clear();
    longest_ = {};
    Pass(absl::Seconds(120));
    absl::Duration total;
    for (const auto& [user, time] : computed_) total += time;
    EXPECT_EQ(computed_.size(), users) << "seed " << seed;
    for (const auto& [user, time] : computed_) {
      const absl::Duration fair = weights.users[user] / all * total;
      EXPECT_LE(absl::AbsDuration(time - fair), 2 * devices * longest_)
          << "seed " << seed << ", " << user << " of weight "
          << weights.users[user] << ": " << time << ", fair is " << fair;
    }
    ForgetServer();
  }
}

// From the moment at which it runs to its first slot, whatever the devices
// have.
TEST_F(SharesTest, AnUrgentJobWaitsForOneSlotAtMost) {
  absl::Duration most_beyond, longest;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    StartServer(static_cast<int>(1 + random() % 4), seed);
    begun_.clear();
    for (uint64_t job = 4 + random() % 5; job > 0; --job) Submit("ann");
    Pass(absl::Seconds(30) + absl::Milliseconds(random() % 1000));
    Submit("bob", "priority: urgent\n");
    const uint64_t urgent = owners_.rbegin()->first;
    std::optional<absl::Time> runs;
    const std::string id = NameOfJob(static_cast<int64_t>(urgent));
    server_->RunFor(absl::Seconds(20), [&] {
      if (runs.has_value()) return;
      const auto job = server_->store().Get(id);
      if (job->state == JobState::kRunning) runs = server_->now();
    });
    ASSERT_TRUE(runs.has_value()) << "seed " << seed;
    // The first one alone counts.
    EXPECT_TRUE(
        absl::StrContains(server_->metrics().Render(),
                          "\nroundhouse_preemption_latency_seconds_count 1\n"))
        << "seed " << seed;
    const absl::Duration waited = begun_.at(urgent) - *runs;
    EXPECT_LE(waited, longest_ + absl::Milliseconds(15)) << "seed " << seed;
    most_beyond = std::max(most_beyond, waited - longest_);
    longest = std::max(longest, longest_);
    ForgetServer();
  }
  std::cout << "at most " << most_beyond << " beyond the longest slot; slots "
            << "take up to " << longest << "\n";
}

// One place, and users who wait for it.
TEST_F(SharesTest, WhoHasUsedMuchWaitsBehindOneWhoHasNot) {
  StartServer(1, 1, 1);
  Submit("ann");
  Pass(absl::Seconds(100));
  Submit("ann");
  Submit("ann");
  Submit("bob");
  Submit("bob");
  EXPECT_EQ(Running(), 1u);
  ASSERT_TRUE(Cancel(1).ok());
  EXPECT_EQ(Running(), 4u);
  // Half of what she has used is more for his share.
  Pass(absl::Seconds(50));
  server_->engine().SetSharing({.weights = {.users = {{"bob", 0.25}}}});
  ASSERT_TRUE(Cancel(4).ok());
  EXPECT_EQ(Running(), 2u);
  // Her job that ran keeps its place in the next daemon, which goes by what the
  // store has from then on.
  Pass(absl::Seconds(100));
  server_->Crash();
  slots_.clear();
  server_->Start();
  EXPECT_EQ(Running(), 2u);
  ASSERT_TRUE(Cancel(2).ok());
  EXPECT_EQ(Running(), 5u);
  ASSERT_TRUE(Cancel(5).ok());
  EXPECT_EQ(Running(), 3u);
}

// Two places.  What runs as the daemon is killed, or stops, runs in the next
// one, whoever waits.
TEST_F(SharesTest, ARestartTakesNobodysPlace) {
  StartServer(1, 1, 2);
  for (int job = 0; job < 3; ++job) Submit("ann");
  Pass(absl::Seconds(60));
  for (int job = 0; job < 2; ++job) Submit("bob");
  const auto running = [this] {
    Pass(absl::Seconds(20));
    std::set<uint64_t> jobs;
    for (const auto& [job, user] : owners_) {
      const auto record =
          server_->store().Get(NameOfJob(static_cast<int64_t>(job)));
      if (record->state == JobState::kRunning) jobs.insert(job);
    }
    return jobs;
  };
  EXPECT_EQ(running(), (std::set<uint64_t>{1, 2}));
  server_->Crash();
  slots_.clear();
  server_->Start();
  EXPECT_EQ(running(), (std::set<uint64_t>{1, 2}));
  ASSERT_TRUE(Cancel(1).ok());
  EXPECT_EQ(running(), (std::set<uint64_t>{2, 4}));
  server_->Crash();
  slots_.clear();
  server_->Start();
  EXPECT_EQ(running(), (std::set<uint64_t>{2, 4}));
}

// Two whose owners have about the same, and whose turn changes with each turn
// of the loop: the one that is being opened stays the first.
TEST_F(SharesTest, AJobThatIsBeingOpenedIsOpenedToItsEnd) {
  StartServer(1, 1);
  const int64_t hour = HourOf(server_->now());
  for (const char* user : {"ann", "bob"}) {
    const UsageKey key = {
        .hour = hour, .project = kDefaultProject, .user = user};
    ASSERT_TRUE(WriteUsage(server_->store(), {{key, {1'000'000, 0}}}).ok());
  }
  server_->Crash();
  server_->Start();
  server_->engine().SetSharing({.running = {.all = 0}});
  Submit("ann");
  Submit("bob");
  EXPECT_EQ(Running(), 0u);
  const auto any_loads = [this] {
    for (const auto& [job, user] : owners_) {
      const auto record =
          server_->store().Get(NameOfJob(static_cast<int64_t>(job)));
      if (record->state != JobState::kQueued) return true;
    }
    return false;
  };
  for (int turn = 0; turn < 300 && !any_loads(); ++turn) {
    const char* const first = turn % 2 == 0 ? "ann" : "bob";
    server_->engine().SetSharing(
        {.weights = {.users = {{first, 2}}}, .running = {.all = 1}});
    server_->Turn();
  }
  EXPECT_TRUE(any_loads());
}

// The metrics of users say what devices computed, and who is owed how much.
TEST_F(SharesTest, MetricsSayWhatEachUserHas) {
  constexpr int kDevices = 2;
  StartServer(kDevices, 1);
  for (int job = 0; job < 3; ++job) {
    Submit("ann");
    Submit("bob");
  }
  Pass(absl::Seconds(200));
  const auto value = [this](const std::string& name, const std::string& user) {
    const std::string page = server_->metrics().Render();
    const std::string line =
        absl::StrCat("\nroundhouse_user_", name, "user=\"", user, "\"} ");
    const size_t at = page.find(line);
    return at == std::string::npos
               ? std::nan("")
               : std::strtod(page.c_str() + at + line.size(), nullptr);
  };
  const double slots = absl::ToDoubleSeconds(kDevices * longest_);
  for (const char* user : {"ann", "bob"}) {
    const double computed = absl::ToDoubleSeconds(computed_[user]);
    EXPECT_GT(computed, 100) << user;
    EXPECT_NEAR(value("service_seconds_total{", user), computed, slots) << user;
    EXPECT_EQ(value("jobs{state=\"running\",", user), 3) << user;
    EXPECT_EQ(value("jobs{state=\"queued\",", user), 0) << user;
    // Within two slots on each device, and two where the time is cut.
    EXPECT_LE(std::abs(value("service_lag_seconds{", user)), 4 * slots) << user;
  }
  // His share is three times as much from now on, as if it had been before.
  server_->engine().SetSharing({.weights = {.users = {{"bob", 3}}}});
  Pass(absl::Seconds(20));
  const double lag = value("service_lag_seconds{", "bob");
  EXPECT_GT(lag, absl::ToDoubleSeconds(computed_["bob"]) / 4);
  EXPECT_NEAR(value("service_lag_seconds{", "ann"), -lag, 1e-3);
}

// Two who always have more to do, and one who had a lot before they came.
TEST_F(SharesTest, NobodyWaitsForEver) {
  StartServer(1, 1, 1);
  Submit("dan");
  Pass(absl::Seconds(60));
  for (const char* user : {"ann", "bob", "ann", "bob", "dan"}) Submit(user);
  const uint64_t last = owners_.rbegin()->first;
  ASSERT_TRUE(Cancel(1).ok());
  std::map<std::string, int> turns;
  for (int turn = 0; turn < 40 && turns["dan"] == 0; ++turn) {
    const uint64_t running = Running();
    ASSERT_NE(running, 0u) << turn;
    const std::string user = owners_[running];
    ++turns[user];
    if (running == last) break;
    Pass(absl::Seconds(5));
    Submit(user);
    ASSERT_TRUE(Cancel(running).ok());
  }
  EXPECT_EQ(turns["dan"], 1);
  EXPECT_GT(turns["ann"], 2);
  EXPECT_LE(std::abs(turns["ann"] - turns["bob"]), 1);
}

// Who has used his hours of a week up waits until the first of them is over.
TEST_F(SharesTest, DeviceHoursComeBackByThemselves) {
  StartServer(1, 1);
  const UsageKey then = {.hour = HourOf(server_->now()) - kHalfLifeHours + 1,
                         .project = kDefaultProject,
                         .user = "ann"};
  constexpr int64_t kTwoHoursNs = int64_t{7'200} * 1'000'000'000;
  ASSERT_TRUE(WriteUsage(server_->store(), {{then, {kTwoHoursNs, 0}}}).ok());
  server_->Crash();
  server_->Start();
  server_->engine().SetSharing({.gpu_hours = {.other_users = 2}});
  Submit("ann");
  Submit("bob");
  EXPECT_EQ(Running(), 2u);
  ASSERT_TRUE(Cancel(2).ok());
  EXPECT_EQ(Running(), 0u);
  const absl::Time next = absl::FromUnixSeconds(
      (HourOf(server_->now()) + 1) * absl::ToInt64Seconds(absl::Hours(1)));
  Pass(next - server_->now() - absl::Seconds(10));
  EXPECT_EQ(Running(), 0u);
  Pass(absl::Seconds(10));
  EXPECT_EQ(Running(), 1u);
}

// One of hers runs at a time, and another's beside it.
TEST_F(SharesTest, JobsOfAUserHoldAsMuchHostMemoryAsHeMay) {
  StartServer(1, 1);
  const uint64_t before = server_->arena().used_bytes();
  Submit("ann");
  EXPECT_EQ(Running(), 1u);
  const uint64_t held = server_->arena().used_bytes() - before;
  // What it needs is more by the tables of loads.
  server_->engine().SetSharing(
      {.host_bytes = {.other_users = static_cast<int64_t>(held * 19 / 10)}});
  Submit("ann");
  Submit("bob");
  Pass(absl::Seconds(5));
  const auto state = [this](const std::string& id) {
    return server_->store().Get(id)->state;
  };
  EXPECT_EQ(state("job-2"), JobState::kQueued);
  EXPECT_EQ(state("job-3"), JobState::kRunning);
  ASSERT_TRUE(Cancel(1).ok());
  Pass(absl::Seconds(5));
  EXPECT_EQ(state("job-2"), JobState::kRunning);
}

// What is booked for each user is what workers computed for him, but for slots
// whose job was gone; a daemon that is killed loses a minute of each device.
TEST_F(SharesTest, AccountsSayWhatDevicesComputed) {
  constexpr int kDevices = 2;
  StartServer(kDevices, 1);
  Submit("ann");
  Submit("bob");
  Pass(absl::Seconds(100));
  EndAll();
  std::map<std::string, absl::Duration> computed = computed_;
  std::map<std::string, UsageAmount> used = Used();
  const absl::Duration slots = kDevices * longest_;
  for (const std::string user : {"ann", "bob"}) {
    const absl::Duration booked = absl::Nanoseconds(used[user].device_ns);
    EXPECT_GT(booked, absl::Seconds(30)) << user;
    EXPECT_LE(booked, computed[user]) << user;
    EXPECT_GE(booked, computed[user] - slots) << user;
    EXPECT_GT(used[user].host_mib_seconds, 10) << user;
  }
  for (int life = 0; life < 3; ++life) {
    Submit("ann");
    Pass(absl::Seconds(150));
    server_->Crash();
    slots_.clear();
    server_->Start();
    EndAll();
  }
  const absl::Duration lost =
      computed_["ann"] - absl::Nanoseconds(Used()["ann"].device_ns);
  EXPECT_GE(lost, absl::ZeroDuration());
  EXPECT_LE(lost,
            3 * kDevices * (kUsageInterval + absl::Seconds(1)) + 4 * slots);
}

// From the moment at which nothing of it runs any more, for its next slots read
// what these compute, and the host worker's updates.
TEST_F(SharesTest, AJobThatBecomesUrgentWaitsForOneSlotAtMost) {
  absl::Duration most_beyond, longest;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    StartServer(static_cast<int>(1 + random() % 4), seed);
    for (uint64_t job = 4 + random() % 5; job > 0; --job) Submit("ann");
    Submit("bob");
    const uint64_t urgent = owners_.rbegin()->first;
    const std::string id = NameOfJob(static_cast<int64_t>(urgent));
    Pass(absl::Seconds(30) + absl::Milliseconds(random() % 1000));
    const auto changed = server_->Call<absl::StatusOr<JobRecord>>([&] {
      return server_->engine().SetPriority(id, {.priority = Priority::kUrgent});
    });
    ASSERT_TRUE(changed.ok()) << changed.status();
    ASSERT_EQ(changed->state, JobState::kRunning) << "seed " << seed;
    absl::Time since = server_->now();
    begun_.clear();
    server_->RunFor(absl::Seconds(20), [&] {
      if (begun_.contains(urgent)) return;
      for (const auto& [slot, job] : running_) {
        if (job == urgent) since = server_->now();
      }
    });
    ASSERT_TRUE(begun_.contains(urgent)) << "seed " << seed;
    const absl::Duration waited = begun_.at(urgent) - since;
    EXPECT_LE(waited, longest_ + absl::Milliseconds(150)) << "seed " << seed;
    most_beyond = std::max(most_beyond, waited - longest_);
    longest = std::max(longest, longest_);
    ForgetServer();
  }
  std::cout << "at most " << most_beyond << " beyond the longest slot; slots "
            << "take up to " << longest << "\n";
}

}  // namespace
}  // namespace roundhouse::sim
