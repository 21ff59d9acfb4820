// How users share the devices of a whole daemon, in virtual time.

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::sim {
namespace {

class SharesTest : public testing::Test {
 protected:
  SharesTest() : root_(testing::TempDir() + "/shares_test") {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    root_ = std::filesystem::canonical(root_);
  }
  ~SharesTest() override {
    server_.reset();
    std::filesystem::remove_all(root_);
  }

  void StartServer(int devices, uint64_t seed) {
    SimServerOptions options;
    options.root = root_;
    options.workers.device_count = devices;
    options.workers.seed = seed;
    options.workers.done = [this](const Order& order, absl::Duration time) {
      const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
      if (slot == nullptr) return;
      computed_[owners_[slot->job]] += time;
      longest_ = std::max(longest_, time);
    };
    options.host_bytes = uint64_t{256} << 20;
    options.max_running_jobs = 16;
    server_ = std::make_unique<SimServer>(options);
    server_->Start();
  }

  void Submit(const std::string& user) {
    SubmitRequest request;
    request.text =
        "model_name_or_path: m\nmodel_init: random\ndataset: d.jsonl\n"
        "max_length: 8\nbatch_size: 4\nmicro_batch_size: 1\n"
        "max_steps: 100000\nsave_steps: 100000\n";
    request.file_name = "job.yaml";
    request.caller = {.principal = "user:" + user, .user = user, .admin = true};
    const auto made = server_->Call<absl::StatusOr<SubmitResult>>(
        [&] { return server_->engine().Submit(request); });
    ASSERT_TRUE(made.ok()) << made.status();
    owners_[static_cast<uint64_t>(*JobNumber(made->job.id))] = user;
  }

  void Pass(absl::Duration time) {
    server_->RunFor(time, [] {});
  }

  std::string root_;
  std::map<uint64_t, std::string> owners_;
  std::map<std::string, absl::Duration> computed_;
  absl::Duration longest_;
  std::unique_ptr<SimServer> server_;
};

// Jobs of lengths that differ by up to sixteen times, three a user at least:
// each user has a slot that can go whenever a device is free.
TEST_F(SharesTest, UsersWithAnyNumberOfJobsGetTheSame) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    const int devices = static_cast<int>(1 + random() % 4);
    const int users = static_cast<int>(2 + random() % 2);
    StartServer(devices, seed);
    owners_.clear();
    for (int user = 0; user < users; ++user) {
      for (uint64_t job = 0; job < 3 + random() % 3; ++job) {
        Submit(absl::StrCat("user", user));
      }
    }
    Pass(absl::Seconds(30));  // all run
    computed_.clear();
    longest_ = {};
    Pass(absl::Seconds(120));
    absl::Duration least = absl::InfiniteDuration(), most;
    for (const auto& [user, time] : computed_) {
      least = std::min(least, time);
      most = std::max(most, time);
    }
    EXPECT_EQ(computed_.size(), static_cast<size_t>(users)) << "seed " << seed;
    std::cout << devices << " devices, " << owners_.size() << " jobs of "
              << users << " users: " << least << " to " << most << ", longest "
              << longest_ << "\n";
    EXPECT_LE(most - least, 2 * devices * longest_) << "seed " << seed;
    server_.reset();
    std::filesystem::remove_all(root_ + "/state");
  }
}

}  // namespace
}  // namespace roundhouse::sim
