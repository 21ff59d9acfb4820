// A daemon in virtual time whose users share its devices and memory: jobs that
// go on for as long as a test likes, and what each got.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_TESTS_SIM_SHARING_TEST_FIXTURE_H_
#define ROUNDHOUSE_TESTS_SIM_SHARING_TEST_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/usage/usage_table.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::sim {

class SharingTest : public testing::Test {
 protected:
  SharingTest() : root_(std::filesystem::canonical(NewRoot())) {}
  ~SharingTest() override {
    EXPECT_EQ(computed_twice_, 0);
    server_.reset();
    std::filesystem::remove_all(root_);
  }

  void StartServer(int devices, uint64_t seed, int max_running_jobs = 16) {
    SimServerOptions options;
    options.root = root_;
    options.workers.device_count = devices;
    options.workers.seed = seed;
    options.workers.begins = [this](const Order& order) {
      const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
      if (slot == nullptr) return;
      begun_.try_emplace(slot->job, server_->now());
      running_[slot->slot] = slot->job;
      // A replay has the same number.
      if (!slots_.insert(slot->slot).second) ++computed_twice_;
    };
    options.workers.done = [this](const Order& order, absl::Duration time) {
      const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
      if (slot == nullptr) return;
      running_.erase(slot->slot);
      computed_[owners_[slot->job]] += time;
      longest_ = std::max(longest_, time);
    };
    options.host_bytes = host_bytes_;
    options.max_running_jobs = max_running_jobs;
    options.store_fault = [this] { return store_fault_; };
    owners_.clear();
    slots_.clear();
    running_.clear();
    server_ = std::make_unique<SimServer>(options);
    server_->Start();
  }

  // The next one starts with nothing.
  void ForgetServer() {
    server_.reset();
    std::filesystem::remove_all(root_ + "/state");
  }

  void Submit(const std::string& user, const std::string& more = "") {
    SubmitRequest request;
    request.text =
        "model_name_or_path: m\nmodel_init: random\ndataset: d.jsonl\n"
        "max_length: 8\nbatch_size: 4\nmicro_batch_size: 1\n" +
        more;
    for (const char* field : {"max_steps", "save_steps"}) {
      if (absl::StrContains(more, field)) continue;
      request.text += absl::StrCat(field, ": 100000\n");
    }
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

  absl::Status Cancel(uint64_t job) {
    const std::string id = NameOfJob(static_cast<int64_t>(job));
    return server_
        ->Call<absl::StatusOr<JobRecord>>(
            [&] { return server_->engine().Cancel(id); })
        .status();
  }
  // Cancels every job, and waits.
  void EndAll() {
    for (const auto& [job, user] : owners_) Cancel(job).IgnoreError();
    Pass(absl::Seconds(10));
  }
  // The only one that runs, after a while; 0: none does.
  uint64_t Running() {
    Pass(absl::Seconds(5));
    uint64_t running = 0;
    for (const auto& [job, user] : owners_) {
      const auto record =
          server_->store().Get(NameOfJob(static_cast<int64_t>(job)));
      if (!record.ok() || record->state != JobState::kRunning) continue;
      EXPECT_EQ(running, 0u);
      running = job;
    }
    return running;
  }

  // What is booked, by user.
  std::map<std::string, UsageAmount> Used() {
    std::map<std::string, UsageAmount> used;
    const absl::Status read = ReadUsage(
        server_->store(), 0, [&](const UsageKey& key, const UsageAmount& row) {
          used[key.user].device_ns += row.device_ns;
          used[key.user].host_mib_seconds += row.host_mib_seconds;
        });
    EXPECT_TRUE(read.ok()) << read;
    return used;
  }

  JobRecord Job(int64_t number) {
    return *server_->store().Get(NameOfJob(number));
  }
  // What happened to it, for whoever looks for a mistake.
  std::string Events(int64_t number) {
    std::string text = absl::StrCat(NameOfJob(number), ":");
    const auto page = server_->store().ListEvents(NameOfJob(number), 0, 100);
    if (!page.ok()) return page.status().ToString();
    for (const JobEvent& event : page->events) {
      absl::StrAppend(&text, "\n  ", absl::FormatTime(event.time), " ",
                      JobStateName(event.state), " ",
                      JobReasonName(event.reason), " ", event.message);
    }
    return text;
  }
  absl::StatusOr<JobRecord> Ask(
      absl::StatusOr<JobRecord> (Engine::*call)(const std::string&),
      int64_t number) {
    return server_->Call<absl::StatusOr<JobRecord>>(
        [&] { return (server_->engine().*call)(NameOfJob(number)); });
  }

  std::string root_;
  uint64_t host_bytes_ = uint64_t{256} << 20;
  absl::Status store_fault_;  // of all that it writes
  std::map<uint64_t, std::string> owners_;
  std::set<uint64_t> slots_;
  int computed_twice_ = 0;
  std::map<uint64_t, absl::Time> begun_;  // a job's first slot
  std::map<uint64_t, uint64_t> running_;  // slots, and their jobs
  std::map<std::string, absl::Duration> computed_;
  absl::Duration longest_;
  std::unique_ptr<SimServer> server_;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_SHARING_TEST_FIXTURE_H_
