// `roundhouse delete`, `prune` and `du` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

constexpr char kJob[] = "projects/default/fineTuningJobs/job-1";

class DiskCommandTest : public ClientTest {
 protected:
  DiskCommandTest() {
    environment_.ask = [this](const std::string& question, Typed) {
      questions_.push_back(question);
      return answer_;
    };
    server_.answers().delete_job =
        [this](const v1::DeleteFineTuningJobRequest& request,
               v1::DeleteFineTuningJobResponse* response) {
          deletes_.push_back(request);
          *response = deleted_;
          return deletes_.size() == 1 ? grpc::Status::OK : second_;
        };
    server_.answers().old_checkpoints =
        [this](const v1::ListOldCheckpointsRequest& request,
               v1::ListOldCheckpointsResponse* response) {
          asked_.push_back(request);
          *response->add_checkpoints() = old_[asked_.size() - 1];
          if (asked_.size() < old_.size()) {
            response->set_next_page_token("more");
          }
          return grpc::Status::OK;
        };
    server_.answers().delete_checkpoints =
        [this](const v1::DeleteCheckpointsRequest& request,
               v1::DeleteCheckpointsResponse* response) {
          pruned_.push_back(request);
          for (const int64_t step : request.steps()) {
            for (const v1::Checkpoint& one : old_) {
              if (one.job() == request.name() && one.step() == step) {
                *response->add_checkpoints() = one;
              }
            }
          }
          return pruned_.size() == 1 ? first_ : grpc::Status::OK;
        };
    AddPart(v1::DISK_KIND_CHECKPOINT, 1 << 20, 4);
    AddPart(v1::DISK_KIND_LOGS, 512, 0);
    deleted_.mutable_kept_output()->set_size_bytes(2048);
    deleted_.set_kept_output_path("/state/outputs/a\x1b[2J");
  }

  void AddPart(v1::DiskKind kind, int64_t bytes, int64_t step) {
    v1::DiskPart* const part = deleted_.add_parts();
    part->set_kind(kind);
    part->set_size_bytes(bytes);
    part->set_step(step);
  }
  void AtATerminal(const std::optional<std::string>& answer) {
    environment_.in_is_terminal = true;
    answer_ = answer;
  }
  static v1::Checkpoint Old(int job, int64_t step) {
    v1::Checkpoint one;
    one.set_job("projects/default/fineTuningJobs/job-" + std::to_string(job));
    one.set_step(step);
    one.set_size_bytes(1024);
    one.mutable_create_time()->set_seconds(1'700'000'000);
    one.set_owner("anna");
    one.set_project("default");
    return one;
  }

  std::optional<std::string> answer_;
  std::vector<std::string> questions_;
  v1::DeleteFineTuningJobResponse deleted_;
  std::vector<v1::DeleteFineTuningJobRequest> deletes_;
  grpc::Status second_;
  std::vector<v1::Checkpoint> old_ = {Old(1, 2), Old(2, 2), Old(1, 4)};
  std::vector<v1::ListOldCheckpointsRequest> asked_;
  std::vector<v1::DeleteCheckpointsRequest> pruned_;
  grpc::Status first_;
};

TEST_F(DiskCommandTest, DeleteShowsWhatGoesAndAsks) {
  AtATerminal("y");
  EXPECT_EQ(Run({"delete", "job-1"}), ExitCode::kOk) << err();
  EXPECT_EQ(err(),
            "This goes with job-1:\n"
            "WHAT                  SIZE\n"
            "record and events     -\n"
            "checkpoint of step 4  1.0 MiB\n"
            "logs of jobs          512 B\n"
            "in all                1.0 MiB\n"
            "Its result stays in /state/outputs/a\\x1b[2J (2.0 KiB); "
            "--output deletes it, too.\n");
  EXPECT_EQ(out(), "Deleted job-1: 1.0 MiB\n");
  ASSERT_EQ(questions_.size(), 1u);
  EXPECT_EQ(questions_[0], "Delete job-1 for good? (y/N) ");
  ASSERT_EQ(deletes_.size(), 2u);
  EXPECT_TRUE(deletes_[0].validate_only());
  EXPECT_FALSE(deletes_[1].validate_only());
  EXPECT_FALSE(deletes_[1].output());
}

TEST_F(DiskCommandTest, NothingGoesWithoutAYes) {
  for (const char* answer : {"n", "", "yesterday"}) {
    AtATerminal(answer);
    deletes_.clear();
    EXPECT_EQ(Run({"delete", "job-1"}), ExitCode::kCancelled);
    EXPECT_NE(err().find("Nothing was deleted.\n"), std::string::npos);
    EXPECT_EQ(out(), "");
    EXPECT_EQ(deletes_.size(), 1u);
    asked_.clear();
    EXPECT_EQ(Run({"prune"}), ExitCode::kCancelled);
  }
  EXPECT_TRUE(pruned_.empty());
}

TEST_F(DiskCommandTest, WhereNobodySitsYesIsNeeded) {
  answer_ = "y";  // nobody reads it
  EXPECT_EQ(Run({"delete", "job-1"}), ExitCode::kUsage);
  EXPECT_NE(err().find("delete: nobody is here to ask, and nothing was "
                       "deleted; --yes deletes without asking\n"),
            std::string::npos)
      << err();
  EXPECT_EQ(deletes_.size(), 1u);
  EXPECT_EQ(Run({"prune"}), ExitCode::kUsage);
  EXPECT_TRUE(pruned_.empty());
  // A terminal that has just gone is nobody, too.
  AtATerminal(std::nullopt);
  deletes_.clear();
  EXPECT_EQ(Run({"delete", "job-1"}), ExitCode::kUsage);
  deletes_.clear();
  EXPECT_EQ(Run({"delete", "job-1", "--yes", "--output", "-o", "name"}),
            ExitCode::kOk);
  EXPECT_EQ(out(), "job-1\n");
  EXPECT_TRUE(deletes_[1].output());
}

TEST_F(DiskCommandTest, WhatCannotBeDeletedIsSaid) {
  second_ = {grpc::StatusCode::FAILED_PRECONDITION, "job-2 uses it"};
  EXPECT_EQ(Run({"delete", "job-1", "-y"}), ExitCode::kPrecondition);
  EXPECT_NE(err().find("job-2 uses it"), std::string::npos);
  EXPECT_EQ(out(), "");
  second_ = grpc::Status::OK;
  deletes_.clear();
  deleted_.set_left("disk\nfull");
  EXPECT_EQ(Run({"delete", "job-1", "-y", "-o", "json"}), ExitCode::kOk);
  EXPECT_NE(err().find("Some files could not be removed now: disk\\nfull; the "
                       "daemon's next start tries again.\n"),
            std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(out())["parts"].size(), 2u);
  server_.answers().delete_job = nullptr;  // a server of before
  EXPECT_NE(Run({"delete", "job-1", "-y"}), ExitCode::kOk);
  EXPECT_EQ(Run({"delete"}), ExitCode::kUsage);
}

TEST_F(DiskCommandTest, PruneDeletesWhatItShowed) {
  AtATerminal("yes");
  EXPECT_EQ(Run({"prune", "--keep=2", "--older-than=7d", "--project=vision",
                 "--all"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(err(),
            "JOB    STEP  SIZE     MADE (UTC)        OWNER  PROJECT\n"
            "job-1  2     1.0 KiB  2023-11-14 22:13  anna   default\n"
            "job-2  2     1.0 KiB  2023-11-14 22:13  anna   default\n"
            "job-1  4     1.0 KiB  2023-11-14 22:13  anna   default\n"
            "in all 3.0 KiB\n");
  EXPECT_EQ(questions_[0], "Delete 3 checkpoints, 3.0 KiB? (y/N) ");
  EXPECT_EQ(out(), "Deleted 3 checkpoints, 3.0 KiB\n");
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[0].keep(), 2);
  EXPECT_EQ(asked_[0].older_than_seconds(), 7 * 24 * 3600);
  EXPECT_EQ(asked_[0].project(), "vision");
  EXPECT_TRUE(asked_[0].everybody());
  EXPECT_EQ(asked_[2].page_token(), "more");
  ASSERT_EQ(pruned_.size(), 2u);
  EXPECT_EQ(pruned_[0].name(), kJob);
  EXPECT_EQ(pruned_[0].steps_size(), 2);
  EXPECT_EQ(pruned_[1].steps_size(), 1);
}

TEST_F(DiskCommandTest, PruneGoesOnWhereAJobIsInUse) {
  first_ = {grpc::StatusCode::FAILED_PRECONDITION, "read by an export"};
  EXPECT_EQ(Run({"prune", "--yes"}), ExitCode::kPrecondition);
  EXPECT_EQ(asked_[0].keep(), 1);
  EXPECT_EQ(asked_[0].older_than_seconds(), 0);
  EXPECT_FALSE(asked_[0].everybody());
  EXPECT_NE(err().find("prune checkpoints of job-1"), std::string::npos)
      << err();
  EXPECT_EQ(out(), "Deleted 1 checkpoint, 1.0 KiB\n");
}

TEST_F(DiskCommandTest, ADryRunOnlyLists) {
  EXPECT_EQ(Run({"prune", "--dry-run", "--keep=0", "-o", "name"}),
            ExitCode::kOk);
  EXPECT_EQ(out(),
            "projects/default/fineTuningJobs/job-1/checkpoints/2\n"
            "projects/default/fineTuningJobs/job-2/checkpoints/2\n"
            "projects/default/fineTuningJobs/job-1/checkpoints/4\n");
  EXPECT_EQ(asked_[0].keep(), 0);
  asked_.clear();
  EXPECT_EQ(Run({"prune", "--dry-run", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["checkpoints"].size(), 3u);
  EXPECT_TRUE(pruned_.empty());
}

TEST_F(DiskCommandTest, NothingToPruneIsNoError) {
  server_.answers().old_checkpoints = [](const auto&, auto*) {
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"prune"}), ExitCode::kOk);
  EXPECT_EQ(err(), "There is nothing to delete.\n");
  EXPECT_EQ(out(), "");
  for (const char* flag : {"--keep=-1", "--keep=3000000000", "--older-than=7",
                           "--older-than=", "--older-than=0d",
                           "--older-than=4000d", "--older-than=d"}) {
    const ExitCode code = Run({"prune", flag});
    EXPECT_EQ(code, std::string(flag) == "--older-than=" ? ExitCode::kOk
                                                         : ExitCode::kUsage)
        << flag;
  }
}

class DuCommandTest : public ClientTest {
 protected:
  DuCommandTest() {
    server_.answers().disk_usage = [this](
                                       const v1::GetDiskUsageRequest& request,
                                       v1::GetDiskUsageResponse* response) {
      asked_.push_back(request);
      const auto add = [&](v1::DiskKind kind, const std::string& name,
                           const std::string& owner, const std::string& project,
                           int64_t kib) {
        v1::DiskPart* const part = response->add_parts();
        part->set_kind(kind);
        part->set_name(name);
        part->set_owner(owner);
        part->set_project(project);
        part->set_size_bytes(kib << 10);
      };
      response->set_disk_free_bytes(int64_t{50} << 30);
      response->set_disk_total_bytes(int64_t{100} << 30);
      if (request.page_token().empty()) {
        add(v1::DISK_KIND_STORE, "", "", "", 1);
        add(v1::DISK_KIND_UPLOAD, "dataset:dates", "anna", "vision", 2);
        response->set_next_page_token("more");
        return grpc::Status::OK;
      }
      add(v1::DISK_KIND_CHECKPOINT, kJob, "otto", "default", 4);
      add(v1::DISK_KIND_OUTPUT, kJob, "otto", "default", 8);
      add(v1::DISK_KIND_LOGS, kJob, "otto", "default", 16);
      add(v1::DISK_KIND_EXPORT, "merged", "", "vision", 32);
      response->mutable_parts(0)->set_partial(true);
      return grpc::Status::OK;
    };
  }

  std::vector<v1::GetDiskUsageRequest> asked_;
};

TEST_F(DuCommandTest, WhatThereIsByKind) {
  EXPECT_EQ(Run({"du"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(),
            "WHAT                                  SIZE\n"
            "checkpoints                           at least 4.0 KiB\n"
            "results of jobs                       8.0 KiB\n"
            "logs of jobs                          16.0 KiB\n"
            "exports, and results of deleted jobs  32.0 KiB\n"
            "uploads                               2.0 KiB\n"
            "job store and the like                1.0 KiB\n"
            "in all                                63.0 KiB\n"
            "50.0 GiB of 100.0 GiB are free.\n");
  EXPECT_EQ(asked_.size(), 2u);
}

TEST_F(DuCommandTest, AndByWhoseItIs) {
  EXPECT_EQ(Run({"du", "--by=user", "--project=vision"}), ExitCode::kOk);
  EXPECT_EQ(asked_[1].project(), "vision");
  EXPECT_EQ(out(),
            "USER  CHECKPOINTS  RESULTS   UPLOADS  OTHER     ALL\n"
            "-     0 B          32.0 KiB  0 B      1.0 KiB   33.0 KiB\n"
            "otto  4.0 KiB      8.0 KiB   0 B      16.0 KiB  28.0 KiB\n"
            "anna  0 B          0 B       2.0 KiB  0 B       2.0 KiB\n"
            "50.0 GiB of 100.0 GiB are free.\n");
  EXPECT_EQ(Run({"du", "--by=project"}), ExitCode::kOk);
  EXPECT_NE(out().find("vision   0 B"), std::string::npos) << out();
  EXPECT_EQ(Run({"du", "--by=job"}), ExitCode::kOk);
  EXPECT_EQ(out(),
            "JOB             OWNER  CHECKPOINTS  RESULTS   UPLOADS  OTHER     "
            "ALL\n"
            "outputs/merged  -      0 B          32.0 KiB  0 B      0 B       "
            "32.0 KiB\n"
            "job-1           otto   4.0 KiB      8.0 KiB   0 B      16.0 KiB  "
            "28.0 KiB\n"
            "dataset:dates   anna   0 B          0 B       2.0 KiB  0 B       "
            "2.0 KiB\n"
            "-               -      0 B          0 B       0 B      1.0 KiB   "
            "1.0 KiB\n"
            "50.0 GiB of 100.0 GiB are free.\n");
}

// As when somebody else's call looks at the disk.
TEST_F(DuCommandTest, ABusyServerIsAskedAgain) {
  environment_.stream_retry.attempts = 3;
  environment_.stream_retry.first_delay = absl::Milliseconds(1);
  const auto answer = server_.answers().disk_usage;
  int calls = 0, busy = 2;
  server_.answers().disk_usage = [&](const v1::GetDiskUsageRequest& request,
                                     v1::GetDiskUsageResponse* response) {
    if (++calls <= busy) {
      return grpc::Status(grpc::StatusCode::ABORTED, "another call looks");
    }
    return answer(request, response);
  };
  EXPECT_EQ(Run({"du"}), ExitCode::kOk) << err();
  EXPECT_EQ(calls, 4);
  calls = 0;
  busy = 3;
  EXPECT_EQ(Run({"du"}), ExitCode::kPrecondition);
  EXPECT_NE(err().find("another call looks"), std::string::npos) << err();
  EXPECT_EQ(calls, 3);
}

TEST_F(DuCommandTest, JsonHasAllParts) {
  EXPECT_EQ(Run({"du", "-o", "json"}), ExitCode::kOk);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["parts"].size(), 6u);
  EXPECT_EQ(json["next_page_token"], "");
  EXPECT_EQ(Run({"du", "-o", "name"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"du", "--by=users"}), ExitCode::kUsage);
  EXPECT_NE(err().find("did you mean user?"), std::string::npos) << err();
  server_.answers().disk_usage = nullptr;
  EXPECT_EQ(Run({"du"}), ExitCode::kError);
}

}  // namespace
}  // namespace roundhouse::client
