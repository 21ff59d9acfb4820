#include "scheduler/share/fair_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/number_from_environment.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Devices that each take a slot of whoever's turn it is as they become free.
class Pool {
 public:
  explicit Pool(int devices) : devices_(devices) { shares.SetDevices(devices); }

  void Add(JobId job, const JobOwner& owner, double slot_ns) {
    shares.AddJob(job, owner);
    jobs_[job] = {owner, slot_ns, true};
  }
  void Remove(JobId job) {
    shares.RemoveJob(job);
    jobs_.erase(job);
  }
  // Whether it has a slot that can go.
  void SetReady(JobId job, bool ready) { jobs_.at(job).ready = ready; }
  bool Has(JobId job) const { return jobs_.contains(job); }

  // Ends the slot that ends first, and gives its device another one.
  void Step() {
    for (Device& device : devices_) Take(device);
    const auto first = std::min_element(
        devices_.begin(), devices_.end(),
        [](const Device& a, const Device& b) { return a.end < b.end; });
    now = first->end;
    End(*first);
  }
  void RunFor(double ns) {
    for (const double end = now + ns; now < end;) Step();
  }

  FairShares shares{[this](JobId job) { return OutNs(job); }};
  std::map<std::string, double> served;  // by user
  double now = 0;

 private:
  struct Job {
    JobOwner owner;
    double slot_ns = 0;
    bool ready = true;
  };
  struct Device {
    std::optional<JobId> job;
    double begin = 0;
    double end = 0;
  };

  double OutNs(JobId job) const {
    double ns = 0;
    for (const Device& device : devices_) {
      if (device.job == job) ns += device.end - device.begin;
    }
    return ns;
  }
  void Take(Device& device) {
    if (device.job.has_value()) return;
    std::optional<JobId> first;
    shares.NoteOut();
    for (const auto& [id, job] : jobs_) {
      if (!job.ready) continue;
      if (!first.has_value() ||
          FairShares::Before(shares.TurnOf(id), shares.TurnOf(*first))) {
        first = id;
      }
    }
    ASSERT_TRUE(first.has_value());
    shares.NoteSent(*first);
    device = {first, now, now + jobs_.at(*first).slot_ns};
  }
  void End(Device& device) {
    const double ns = device.end - device.begin;
    const JobId job = *std::exchange(device.job, std::nullopt);
    if (!jobs_.contains(job)) return;
    shares.NoteDone(job, ns);
    served[jobs_.at(job).owner.user] += ns;
  }

  std::vector<Device> devices_;
  std::map<JobId, Job> jobs_;
};

TEST(FairSharesTest, AUserWithTenJobsGetsWhatOneWithOneJobGets) {
  Pool pool(2);
  pool.Add(JobId{1}, {"vision", "ann"}, 30);
  for (uint64_t i = 2; i < 12; ++i) pool.Add(JobId{i}, {"vision", "bob"}, 20);
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["ann"], pool.served["bob"], 2 * 2 * 30);
}

TEST(FairSharesTest, ProjectsShareFirstThenTheirUsersAllByWeight) {
  Pool pool(1);
  pool.shares.SetWeights({.projects = {{"speech", 3}}, .users = {{"bob", 2}}});
  pool.Add(JobId{1}, {"vision", "ann"}, 10);
  pool.Add(JobId{2}, {"vision", "bob"}, 20);
  pool.Add(JobId{3}, {"speech", "cem"}, 30);
  pool.RunFor(120'000);
  EXPECT_NEAR(pool.served["ann"], 10'000, 100);
  EXPECT_NEAR(pool.served["bob"], 20'000, 100);
  EXPECT_NEAR(pool.served["cem"], 90'000, 100);
}

TEST(FairSharesTest, AWeightThatChangesCountsFromThenOn) {
  Pool pool(1);
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.RunFor(10'000);
  pool.shares.SetWeights({.users = {{"bob", 4}}});
  pool.served.clear();
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["bob"], 8'000, 50);
}

TEST(FairSharesTest, WhoHasNoWeightOfHisOwnHasThatOfOthers) {
  Pool pool(1);
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.shares.SetWeights({.users = {{"bob", 1}}, .other_users = 3});
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["bob"], 2'500, 50);
  pool.shares.SetWeights({});
  pool.served.clear();
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["bob"], 5'000, 50);
}

TEST(FairSharesTest, ANewcomerStartsNowAndNobodyIsOwedWhatHeCouldNotUse) {
  Pool pool(2);
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.RunFor(100'000);
  // Ann is away as Bob comes, whom nobody is beside.
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.SetReady(JobId{1}, false);
  pool.RunFor(50'000);
  pool.SetReady(JobId{1}, true);
  pool.served.clear();
  pool.RunFor(1'000);
  EXPECT_NEAR(pool.served["ann"], 1'000, 60);
  EXPECT_NEAR(pool.served["bob"], 1'000, 60);
}

TEST(FairSharesTest, LeavingAndComingBackPaysNoDebt) {
  Pool pool(1);
  pool.Add(JobId{1}, {"lab", "ann"}, 1'000);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.Step();
  ASSERT_EQ(pool.served["ann"], 1'000);
  pool.Remove(JobId{1});
  pool.Add(JobId{3}, {"lab", "ann"}, 10);
  pool.RunFor(990);
  EXPECT_LE(pool.served["ann"], 1'000);
  pool.RunFor(1'000);
  EXPECT_NEAR(pool.served["ann"], 1'500, 20);
}

TEST(FairSharesTest, SamplesCount) {
  Pool pool(1);
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  for (int i = 0; i < 100; ++i) {
    pool.shares.NoteUse({"lab", "ann"}, 30);
    pool.RunFor(100);
  }
  EXPECT_NEAR(pool.served["ann"] + 3'000, pool.served["bob"], 60);
  pool.shares.NoteUse({"lab", "ann"}, 5'000);
  pool.served.clear();
  pool.RunFor(5'000);  // each slot of hers counts four times
  EXPECT_NEAR(pool.served["ann"], 1'000, 60);
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["ann"] + 5'000, pool.served["bob"], 90);
}

TEST(FairSharesTest, SamplesThatNobodyWaitedForCountNot) {
  Pool pool(1);
  pool.shares.NoteUse({"lab", "ann"}, 1'000'000);
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.RunFor(100);
  pool.shares.NoteUse({"lab", "ann"}, 1'000'000);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.served.clear();
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["ann"], 5'000, 30);
  // Nor does what was not paid when everybody had gone.
  pool.shares.NoteUse({"lab", "ann"}, 1'000'000);
  pool.Remove(JobId{1});
  pool.Remove(JobId{2});
  pool.Add(JobId{3}, {"lab", "ann"}, 10);
  pool.Add(JobId{4}, {"lab", "bob"}, 10);
  pool.served.clear();
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["ann"], 5'000, 30);
}

// What somebody returns to is not set by how long others' slots are.
TEST(FairSharesTest, AUserIsOwedSlotsOfHisOwnOnly) {
  Pool pool(2);
  pool.shares.SetWeights({.users = {{"light", 0.05}}});
  pool.Add(JobId{1}, {"lab", "ann"}, 10);
  pool.Add(JobId{2}, {"lab", "bob"}, 10);
  pool.Add(JobId{3}, {"lab", "cem"}, 10'000);
  pool.Add(JobId{4}, {"lab", "light"}, 100);
  pool.SetReady(JobId{1}, false);
  pool.RunFor(200'000);
  pool.SetReady(JobId{1}, true);
  pool.served.clear();
  pool.RunFor(10'000);
  EXPECT_NEAR(pool.served["ann"], pool.served["bob"], 2 * 2 * 10);
}

// Two users among others, all of whom come and go: in each stretch in which
// both have slots that can go they get, in parts of their weights, within two
// of their longest slots on each device.  Others' slots may be a hundred times
// as long, and their weight small.
class RandomHistory {
 public:
  explicit RandomHistory(uint64_t seed)
      : random_(seed), devices_(1 + Below(8)), pool_(devices_) {
    const double guest = Below(2) == 0 ? 0.05 : 1;
    pool_.shares.SetWeights({.users = {{"bob", weight_}, {"guest", guest}}});
    for (const char* user : {"ann", "bob"}) {
      for (int i = 1 + Below(5); i > 0; --i) {
        const double slot_ns = 1 + Below(100);
        longest_ = std::max(longest_, slot_ns);
        jobs_[user].push_back(JobId{++last_job_});
        pool_.Add(jobs_[user].back(), {"lab", user}, slot_ns);
      }
      Return(user);
    }
    // Somebody has a slot at any time.
    pool_.Add(JobId{++last_job_}, {"lab", "guest"}, 1 + Below(longest_guest_));
  }

  // The furthest that one of the two was from his share in a stretch.
  double Run() {
    for (int step = 0; step < 600; ++step) {
      for (const char* user : {"ann", "bob"}) ComeAndGo(user);
      Guests();
      pool_.Step();
      Measure();
    }
    return most_;
  }
  double allowed() const { return 2 * longest_ * devices_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  void Return(const std::string& user) {
    away_[user] = false;
    for (const JobId job : jobs_[user]) pool_.SetReady(job, true);
    low_ = high_ = std::nullopt;
  }
  void ComeAndGo(const std::string& user) {
    if (Below(60) == 0) {
      if (away_[user]) return Return(user);
      away_[user] = true;
      for (const JobId job : jobs_[user]) pool_.SetReady(job, false);
    }
    // All but the first of his jobs, one by one.
    const std::vector<JobId>& jobs = jobs_[user];
    if (away_[user] || jobs.size() < 2 || Below(4) != 0) return;
    pool_.SetReady(jobs[1 + random_() % (jobs.size() - 1)], Below(2) == 0);
  }
  void Guests() {
    if (Below(20) == 0) {
      guests_.push_back(JobId{++last_job_});
      pool_.Add(guests_.back(), {Below(2) == 0 ? "lab" : "other", "guest"},
                1 + Below(longest_guest_));
    }
    if (!guests_.empty() && Below(20) == 0) {
      pool_.Remove(guests_.back());
      guests_.pop_back();
    }
  }
  void Measure() {
    if (away_["ann"] || away_["bob"]) return;
    const double ahead =
        (pool_.served["bob"] - weight_ * pool_.served["ann"]) / (1 + weight_);
    low_ = std::min(low_.value_or(ahead), ahead);
    high_ = std::max(high_.value_or(ahead), ahead);
    most_ = std::max(most_, *high_ - *low_);
  }

  std::mt19937_64 random_;
  const int devices_;
  Pool pool_;
  const double weight_ = Below(2) == 0 ? 1 : 3;
  const int longest_guest_ = Below(2) == 0 ? 100 : 10'000;
  double longest_ = 0;
  uint64_t last_job_ = 0;
  std::map<std::string, std::vector<JobId>> jobs_;
  std::map<std::string, bool> away_;
  std::vector<JobId> guests_;
  std::optional<double> low_, high_;
  double most_ = 0;
};

TEST(FairSharesTest, RandomHistories) {
  const uint64_t histories = NumberFromEnvironment("ROUNDHOUSE_COUNT", 300);
  for (uint64_t seed = 1; seed <= histories; ++seed) {
    RandomHistory history(seed);
    ASSERT_LE(history.Run(), history.allowed()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace roundhouse
