#include "scheduler/share/service_lag.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "scheduler/share/parts_by_weight.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
const JobOwner kAnn = {"lab", "ann"};
const JobOwner kBob = {"lab", "bob"};

// One look a second, and computation of both until then.
class Server {
 public:
  void Pass(int seconds, const std::vector<std::pair<JobOwner, int>>& used,
            const std::vector<JobOwner>& waiting) {
    for (int i = 0; i < seconds; ++i) {
      now_ns += kSecond;
      for (const auto& [owner, devices] : used) {
        for (int device = 0; device < devices; ++device) {
          lag.NoteUse(owner, now_ns, kSecond);
        }
      }
      lag.NoteWaiting(waiting, now_ns);
    }
  }
  // In seconds.
  double Of(const JobOwner& owner, const ShareWeights& weights = {}) const {
    const auto lags = lag.LagsNs(weights);
    const auto found = lags.find(owner.user);
    return found == lags.end() ? 0 : found->second / kSecond;
  }

  ServiceLag lag;
  int64_t now_ns = 1'000 * kLagIntervalNs;
};

TEST(ServiceLagTest, WhoWaitsIsOwedHisShareAndNoMore) {
  Server server;
  server.Pass(100, {{kAnn, 2}}, {kAnn, kBob});
  EXPECT_NEAR(server.Of(kBob), 100, 2);
  EXPECT_NEAR(server.Of(kAnn), -100, 2);
  const ShareWeights weights = {.users = {{"bob", 3}}};
  EXPECT_NEAR(server.Of(kBob, weights), 150, 3);
}

TEST(ServiceLagTest, WhoCouldUseNoMoreIsOwedNothing) {
  Server server;
  // One device of eight is all that his job can use.
  server.Pass(200, {{kAnn, 7}, {kBob, 1}}, {kAnn});
  EXPECT_NEAR(server.Of(kAnn), 0, 1e-6);
  EXPECT_NEAR(server.Of(kBob), 0, 1e-6);
  // His slots are few, but more than his share.
  server.Pass(100, {{kAnn, 1}, {kBob, 3}}, {kAnn});
  EXPECT_NEAR(server.Of(kAnn), 100, 1e-6);
}

TEST(ServiceLagTest, AloneNobodyIsBehind) {
  Server server;
  server.Pass(100, {{kAnn, 2}}, {kAnn});
  EXPECT_EQ(server.Of(kAnn), 0);
  server.Pass(100, {}, {kAnn, kBob});  // no device computes
  EXPECT_EQ(server.Of(kAnn), 0);
  EXPECT_EQ(server.Of(kBob), 0);
}

TEST(ServiceLagTest, ItIsForgottenAfterAQuarterOfAnHour) {
  Server server;
  server.Pass(100, {{kAnn, 1}}, {kAnn, kBob});
  EXPECT_GT(server.Of(kBob), 40);
  server.Pass(900, {{kAnn, 1}}, {});
  EXPECT_EQ(server.Of(kBob), 0);
}

// Slots that are longer than an interval, in turns.
TEST(ServiceLagTest, ComputationCountsWhereItWas) {
  Server server;
  for (int turn = 0; turn < 8; ++turn) {
    for (const JobOwner& owner : {kAnn, kBob}) {
      server.Pass(25, {}, {kAnn, kBob});
      server.lag.NoteUse(owner, server.now_ns, 25 * kSecond);
    }
  }
  EXPECT_NEAR(server.Of(kAnn), 0, 25);
  // What it says that it took may be anything.
  server.lag.NoteUse(kAnn, server.now_ns, -5);
  server.lag.NoteUse(kAnn, server.now_ns, std::numeric_limits<int64_t>::max());
  server.Pass(10, {}, {kAnn, kBob});
  EXPECT_LT(server.Of(kAnn), 0);
}

TEST(ServiceLagTest, ProjectsShareFirst) {
  Server server;
  const JobOwner cem = {"speech", "cem"};
  const JobOwner ann_too = {"speech", "ann"};
  server.Pass(100, {{kAnn, 1}, {ann_too, 3}}, {kAnn, kBob, cem});
  // Two devices for each project, one for each user in it; she has two.
  EXPECT_NEAR(server.Of(kBob), 100, 2);
  EXPECT_NEAR(server.Of(cem), 100, 2);
  EXPECT_NEAR(server.Of(kAnn), -200, 4);
}

// The same by its definition, slowly: every use and look is kept, and fair
// parts are found by halving.
class Reference {
 public:
  void NoteUse(const JobOwner& owner, int64_t end_ns, int64_t ns) {
    uses_.push_back({{owner.project, owner.user}, end_ns - ns, end_ns});
    newest_ = std::max(newest_, end_ns / kLagIntervalNs);
  }
  void NoteWaiting(const std::vector<JobOwner>& waiting, int64_t now_ns) {
    Look look = {now_ns, {}};
    for (const JobOwner& owner : waiting) {
      look.owners.insert({owner.project, owner.user});
    }
    looks_.push_back(look);
    newest_ = std::max(newest_, now_ns / kLagIntervalNs);
  }
  std::map<std::string, double> LagsNs(const ShareWeights& weights) const {
    std::map<std::string, double> lags;
    for (int64_t i = newest_ - kLagIntervals; i < newest_; ++i) {
      AddLags(i * kLagIntervalNs, weights, lags);
    }
    return lags;
  }

 private:
  using Owner = std::pair<std::string, std::string>;
  struct Used {
    Owner owner;
    int64_t begin_ns, end_ns;
  };
  struct Look {
    int64_t ns;
    std::set<Owner> owners;
  };

  static std::vector<double> Parts(const std::vector<Claim>& demands,
                                   double total) {
    double low = 0, high = 1e15;
    std::vector<double> parts(demands.size());
    for (int halves = 0; halves < 200; ++halves) {
      const double level = (low + high) / 2;
      double sum = 0;
      for (size_t i = 0; i < demands.size(); ++i) {
        parts[i] = std::min(demands[i].most, level * demands[i].weight);
        sum += parts[i];
      }
      (sum < total ? low : high) = level;
    }
    return parts;
  }
  void AddLags(int64_t begin_ns, const ShareWeights& weights,
               std::map<std::string, double>& lags) const {
    const int64_t end_ns = begin_ns + kLagIntervalNs;
    std::map<Owner, double> had;
    std::map<Owner, int> waits;
    int looks = 0;
    for (const Used& used : uses_) {
      const int64_t here =
          std::min(end_ns, used.end_ns) - std::max(begin_ns, used.begin_ns);
      if (here > 0) had[used.owner] += static_cast<double>(here);
    }
    for (const Look& look : looks_) {
      if (look.ns < begin_ns || look.ns >= end_ns) continue;
      ++looks;
      for (const Owner& owner : look.owners) {
        ++waits[owner];
        had[owner] += 0;
      }
    }
    std::map<std::string, Claim> projects;
    double total = 0;
    const auto demand = [&](const Owner& owner) {
      return waits[owner] > 0 && waits[owner] * 2 >= looks ? kInfinite
                                                           : had[owner];
    };
    for (const auto& [owner, ns] : had) {
      total += ns;
      projects[owner.first].weight = weights.OfProject(owner.first);
      projects[owner.first].most += demand(owner);
    }
    std::vector<Claim> all;
    for (const auto& [name, one] : projects) all.push_back(one);
    const std::vector<double> parts = Parts(all, total);
    size_t p = 0;
    for (const auto& [name, one] : projects) {
      std::vector<Owner> owners;
      std::vector<Claim> users;
      for (const auto& [owner, ns] : had) {
        if (owner.first != name) continue;
        owners.push_back(owner);
        users.push_back({weights.OfUser(owner.second), demand(owner)});
      }
      const std::vector<double> fair = Parts(users, parts[p++]);
      for (size_t u = 0; u < owners.size(); ++u) {
        lags[owners[u].second] += fair[u] - had[owners[u]];
      }
    }
  }

  int64_t newest_ = 0;
  std::vector<Used> uses_;
  std::vector<Look> looks_;
};

TEST(ServiceLagTest, RandomHistoriesAreAsTheDefinitionSays) {
  const uint64_t histories = NumberFromEnvironment("ROUNDHOUSE_COUNT", 100);
  for (uint64_t seed = 1; seed <= histories; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](int n) {
      return static_cast<int>(random() % static_cast<uint64_t>(n));
    };
    ServiceLag lag;
    Reference reference;
    ShareWeights weights = {.users = {{"u1", 1.0 + below(4)}, {"u2", 0.1}},
                            .other_users = 0.5 + below(3)};
    weights.projects["p1"] = 1 + below(5);
    const int users = 1 + below(6);
    const int steps = 400 + below(1'200);
    int64_t now_ns = 5'000 * kLagIntervalNs + below(1'000'000'000);
    for (int step = 0; step < steps; ++step) {
      now_ns += static_cast<int64_t>(random() % (2 * kSecond));
      const JobOwner owner = {"p" + std::to_string(below(3)),
                              "u" + std::to_string(below(users))};
      if (below(3) > 0) {
        const int64_t ns = static_cast<int64_t>(
            random() % ((below(20) == 0 ? 40 : 3) * kSecond));
        lag.NoteUse(owner, now_ns, ns);
        reference.NoteUse(owner, now_ns, ns);
      }
      if (below(2) == 0) continue;
      std::vector<JobOwner> waiting;
      for (int more = below(4); more > 0; --more) {
        waiting.push_back({"p" + std::to_string(below(3)),
                           "u" + std::to_string(below(users))});
      }
      lag.NoteWaiting(waiting, now_ns);
      reference.NoteWaiting(waiting, now_ns);
    }
    const std::map<std::string, double> lags = lag.LagsNs(weights);
    const std::map<std::string, double> expected = reference.LagsNs(weights);
    ASSERT_EQ(lags.size(), expected.size()) << "seed " << seed;
    double sum = 0;
    for (const auto& [user, ns] : expected) {
      ASSERT_NEAR(lags.at(user), ns, 1'000) << "seed " << seed << " " << user;
      sum += lags.at(user);
    }
    ASSERT_NEAR(sum, 0, 1'000) << "seed " << seed;
  }
}

}  // namespace
}  // namespace roundhouse
