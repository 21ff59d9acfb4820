// Deleting jobs and checkpoints over a real store and a real disk.  A daemon
// that dies between two steps is a process that kills itself there; the next
// daemon is another Remover on the same files.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/kill_point.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/removal/disk_keeper.h"
#include "server/weights/checkpoint.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

absl::Status Over(const std::string&) { return absl::OkStatus(); }

// What lives as long as one daemon.
struct Life {
  explicit Life(const std::string& state, const Clock& clock)
      : store(*JobStore::Open({.path = state + "/jobs.db",
                               .now = [&clock] { return clock.WallTime(); }})),
        uploads(*Uploads::Open({.state_dir = state}, store.get())),
        paths(state),
        readings(state, clock),
        remover(*store, paths, readings),
        keeper({.store = *store,
                .paths = paths,
                .remover = remover,
                .uploads = uploads.get()},
               {.check_over = Over, .gone = [this](const std::string& id) {
                  gone.push_back(id);
                }}) {}

  const std::unique_ptr<JobStore> store;
  const std::unique_ptr<Uploads> uploads;
  const JobPaths paths;
  Readings readings;
  Remover remover;
  DiskKeeper keeper;
  std::vector<std::string> gone;
};

class RemovalTest : public testing::Test {
 protected:
  RemovalTest() {
    state_ = testing::TempDir() + "/" +
             testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(state_);
    for (const char* folder : {"/jobs", "/outputs", "/datasets"}) {
      fs::create_directories(state_ + folder);
    }
    Restart();
  }
  ~RemovalTest() override { ArmFileFaults("").IgnoreError(); }

  void Restart() {
    life_.reset();
    life_ = std::make_unique<Life>(state_, clock_);
  }
  JobStore& store() { return *life_->store; }

  static void Write(const std::string& path, size_t bytes) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
  }

  // A job with a log of 7 bytes, data of 20, and these checkpoints of 100 each.
  JobRecord MakeJob(const std::string& output_name,
                    const std::vector<int64_t>& steps,
                    const std::string& resolved = "{}",
                    const std::string& owner = "anna") {
    const auto job = store().Create({.text = "t",
                                     .resolved = resolved,
                                     .output_name = output_name,
                                     .principal = owner});
    EXPECT_TRUE(job.ok()) << job.status();
    const std::string directory = life_->paths.Directory(*job);
    Write(directory + "/log", 7);
    Write(directory + "/data/train/tokens.u32", 20);
    for (const int64_t step : steps) {
      const std::string path = CheckpointPath(directory, step);
      Write(path + "/model.safetensors", 60);
      Write(path + "/config.json", 40);
      EXPECT_TRUE(
          store()
              .AddCheckpoint(job->id,
                             {.step = step, .path = path, .size_bytes = 100})
              .ok());
    }
    return *store().Get(job->id);
  }
  // It ends with a result of 50 bytes and its mark.
  JobRecord End(const JobRecord& job) {
    using S = JobState;
    for (const S state : {S::kQueued, S::kLoading, S::kRunning, S::kFinalizing,
                          S::kSucceeded}) {
      EXPECT_TRUE(store().Transition(job.id, state, {}).ok());
    }
    const std::string output = life_->paths.Output(job);
    Write(output + "/model.safetensors", 50);
    std::ofstream(output + "/" + kOutputOwnerName)
        << OutputOwnerJson(job.id, job.uid);
    EXPECT_TRUE(store().SetDetails(job.id, {.output_path = output}).ok());
    return *store().Get(job.id);
  }
  JobRecord EndedJob(const std::string& output_name,
                     const std::vector<int64_t>& steps) {
    return End(MakeJob(output_name, steps));
  }

  absl::StatusOr<DeletedJob> Delete(const JobRecord& job, bool output = false,
                                    bool look_only = false) {
    return life_->keeper.DeleteJob(
        {.job = job, .who = "anna", .output = output, .look_only = look_only});
  }
  absl::StatusOr<DeletedCheckpoints> DeleteSteps(
      const JobRecord& job, const std::vector<int64_t>& steps) {
    return life_->keeper.DeleteCheckpoints(
        {.job = job, .who = "anna", .steps = steps});
  }
  std::vector<std::string> Old(OldCheckpointsQuery query) {
    query.everybody = query.caller.user.empty();
    query.caller.admin = query.everybody;
    std::vector<std::string> found;
    const auto page = life_->keeper.ListOldCheckpoints(query);
    EXPECT_TRUE(page.ok()) << page.status();
    EXPECT_FALSE(page->next_before_job.has_value());
    for (const JobCheckpoint& one : page->checkpoints) {
      EXPECT_EQ(one.bytes, 100);
      found.push_back(absl::StrCat(one.job_id, " ", one.step));
    }
    return found;
  }

  // Another process does it and is killed at `point`.
  void DieAt(const std::string& point, const std::function<void()>& act) {
    life_.reset();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      life_ = std::make_unique<Life>(state_, clock_);
      if (!ArmKillPoint(point + ":1").ok()) _exit(3);
      act();
      _exit(4);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << point << ": " << status;
    Restart();
  }

  bool There(const std::string& path) const { return fs::exists(path); }
  std::set<std::string> NamesIn(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(state_ + "/" + folder)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  std::string state_;
  ManualClock clock_;
  std::unique_ptr<Life> life_;
};

TEST_F(RemovalTest, WhatGoesIsShownBefore) {
  const JobRecord job = EndedJob("name", {2, 4});
  const auto shown = Delete(job, /*output=*/false, /*look_only=*/true);
  ASSERT_TRUE(shown.ok()) << shown.status();
  ASSERT_EQ(shown->parts.size(), 4u);
  EXPECT_EQ(shown->parts[0].kind, DiskKind::kCheckpoint);
  EXPECT_EQ(shown->parts[0].step, 2);
  EXPECT_EQ(shown->parts[0].bytes, 100);
  EXPECT_EQ(shown->parts[0].name, "projects/default/fineTuningJobs/job-1");
  EXPECT_EQ(shown->parts[2].kind, DiskKind::kPreparedData);
  EXPECT_EQ(shown->parts[2].bytes, 20);
  EXPECT_EQ(shown->parts[3].kind, DiskKind::kLogs);
  EXPECT_EQ(shown->parts[3].bytes, 7);
  EXPECT_GT(shown->kept_output->bytes, 50);
  EXPECT_EQ(shown->kept_output_path, state_ + "/outputs/name");
  const auto with = Delete(job, /*output=*/true, /*look_only=*/true);
  EXPECT_EQ(with->parts.size(), 5u);
  EXPECT_FALSE(with->kept_output.has_value());
  EXPECT_TRUE(store().Get(job.id).ok());
  EXPECT_TRUE(life_->gone.empty());
}

TEST_F(RemovalTest, DataThatOthersShareIsNotFree) {
  const JobRecord job = EndedJob("", {});
  fs::create_hard_link(life_->paths.Directory(job) + "/data/train/tokens.u32",
                       state_ + "/datasets/tokens.u32");
  const auto shown = Delete(job, false, true);
  EXPECT_EQ(shown->parts[0].kind, DiskKind::kPreparedData);
  EXPECT_EQ(shown->parts[0].bytes, 0);
}

TEST_F(RemovalTest, AResultStaysAsItsProjects) {
  const JobRecord job = EndedJob("name", {2});
  const auto deleted = Delete(job);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->left, "");
  EXPECT_TRUE(absl::IsNotFound(store().Get(job.id).status()));
  EXPECT_EQ(life_->gone, std::vector<std::string>{job.id});
  EXPECT_TRUE(NamesIn("jobs").empty());
  EXPECT_TRUE(There(state_ + "/outputs/name/model.safetensors"));
  const OutputMark mark = ReadOutputMark(state_ + "/outputs/name");
  EXPECT_EQ(mark.project, "default");
  EXPECT_EQ(mark.job_uid, job.uid);
  EXPECT_EQ(*life_->keeper.FindOutputOf("default"), state_ + "/outputs/name");
  EXPECT_EQ(*life_->keeper.FindOutputOf("vision"), "");
}

TEST_F(RemovalTest, ResultsThatCannotBeListedAreNotNone) {
  fs::remove_all(state_ + "/outputs");
  EXPECT_EQ(*life_->keeper.FindOutputOf("vision"), "");
  std::ofstream(state_ + "/outputs") << "no folder";
  EXPECT_EQ(life_->keeper.FindOutputOf("vision").status().message(),
            state_ + "/outputs can't be listed: Not a directory");
}

TEST_F(RemovalTest, AResultGoesWhereThatIsAsked) {
  const JobRecord job = EndedJob("name", {2});
  ASSERT_TRUE(Delete(job, /*output=*/true).ok());
  EXPECT_TRUE(NamesIn("jobs").empty());
  EXPECT_TRUE(NamesIn("outputs").empty());
  EXPECT_TRUE(store().RemovedJobs()->empty());
}

TEST_F(RemovalTest, WhatTookAResultsPlaceStays) {
  const JobRecord job = EndedJob("name", {});
  std::ofstream(state_ + "/outputs/name/" + kOutputOwnerName)
      << OutputOwnerJson("job-9", "another");
  const auto deleted = Delete(job, /*output=*/true);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(NamesIn("outputs"), std::set<std::string>{"name"});
}

TEST_F(RemovalTest, AJobThatHasNotEndedStays) {
  const JobRecord job = MakeJob("", {2});
  const auto refused = Delete(job);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_EQ(refused.status().message(),
            "job-1 is VALIDATING: it has not ended; cancel it first: "
            "roundhouse cancel job-1");
  EXPECT_FALSE(DeleteSteps(job, {2}).ok());
  EXPECT_TRUE(Old({}).empty());
}

TEST_F(RemovalTest, WhatAJobUsesThatHasNotEndedStays) {
  const JobRecord job = EndedJob("name", {2, 4});
  const std::string directory = life_->paths.Directory(job);
  const auto spec = [](const std::string& field, const std::string& path) {
    return absl::StrCat("{\"", field, "\": \"", path, "\"}");
  };
  const JobRecord resumed = MakeJob(
      "", {}, spec("resume_from_checkpoint", directory + "/checkpoint-2"));
  for (const bool look_only : {true, false}) {
    const auto refused = Delete(job, false, look_only);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
    EXPECT_EQ(refused.status().message(),
              "job-1/checkpoint-2 is used by jobs that have not ended: job-2");
  }
  EXPECT_FALSE(DeleteSteps(job, {2, 4}).ok());
  EXPECT_EQ(Old({}), std::vector<std::string>{"job-1 4"});
  ASSERT_TRUE(DeleteSteps(job, {4}).ok());
  End(resumed);
  // A result is in use while it is to go.
  const JobRecord trained =
      MakeJob("", {}, spec("adapter_name_or_path", state_ + "/outputs/name"));
  EXPECT_FALSE(Delete(job, /*output=*/true).ok());
  EXPECT_EQ(ReadOutputMark(state_ + "/outputs/name").project, "");
  EXPECT_TRUE(Delete(job).ok());
}

TEST_F(RemovalTest, WhatIsReadStays) {
  const JobRecord job = EndedJob("name", {2, 4});
  auto reading = life_->readings.Begin(
      {life_->paths.Directory(job) + "/checkpoint-4"}, "a sample of otto");
  ASSERT_TRUE(reading.ok());
  for (const bool look_only : {true, false}) {
    const auto refused = Delete(job, false, look_only);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
    EXPECT_EQ(refused.status().message(),
              "job-1 is read by a sample of otto; try again when that is over");
  }
  EXPECT_EQ(Old({}), std::vector<std::string>{"job-1 2"});
  EXPECT_FALSE(DeleteSteps(job, {2, 4}).ok());
  EXPECT_EQ(store().ListCheckpoints(job.id)->size(), 2u);
  *reading = nullptr;
  EXPECT_TRUE(Delete(job).ok());
}

TEST_F(RemovalTest, AJobMayNotNameWhatIsGone) {
  const JobRecord job = EndedJob("name", {2, 4});
  const std::string directory = life_->paths.Directory(job);
  const auto there = [&](const std::string& path) {
    return store().ReadWith([&](Database* db) {
      return life_->remover.use().CheckThere(
          db, absl::StrCat("{\"model_name_or_path\": \"", path, "\"}"));
    });
  };
  const std::string output = state_ + "/outputs/name";
  for (const std::string& path :
       {directory + "/checkpoint-2", directory + "/checkpoint-4", output,
        std::string("/elsewhere")}) {
    EXPECT_TRUE(there(path).ok()) << path;
  }
  ASSERT_TRUE(DeleteSteps(job, {2}).ok());
  EXPECT_TRUE(absl::IsNotFound(there(directory + "/checkpoint-2")));
  EXPECT_TRUE(there(directory + "/checkpoint-4").ok());
  // Marked, with the files still there.
  ASSERT_TRUE(
      ArmFileFaults("removal.rename:EIO:ever;removal.remove:EIO:ever").ok());
  ASSERT_NE(DeleteSteps(job, {4})->left, "");
  EXPECT_TRUE(absl::IsNotFound(there(directory + "/checkpoint-4")));
  ASSERT_NE(Delete(job, /*output=*/true)->left, "");
  EXPECT_TRUE(There(output));
  EXPECT_TRUE(absl::IsNotFound(there(output)));
  EXPECT_TRUE(absl::IsNotFound(there(directory)));
}

TEST_F(RemovalTest, TheNewestStayAndTheYoung) {
  const JobRecord job = EndedJob("", {2, 4, 6});
  clock_.Advance(absl::Hours(48));
  const JobRecord second = EndedJob("", {2, 4});
  EXPECT_EQ(Old({.keep = 1}),
            (std::vector<std::string>{"job-2 2", "job-1 2", "job-1 4"}));
  EXPECT_EQ(Old({.keep = 2}), std::vector<std::string>{"job-1 2"});
  EXPECT_EQ(Old({.keep = 9}), std::vector<std::string>{});
  EXPECT_EQ(Old({.keep = 1, .before = clock_.WallTime() - absl::Hours(24)}),
            (std::vector<std::string>{"job-1 2", "job-1 4"}));
  EXPECT_EQ(Old({.project = "vision"}), std::vector<std::string>{});
}

TEST_F(RemovalTest, EachListsHisOwn) {
  const JobRecord hers = EndedJob("", {2});
  const JobRecord his = End(MakeJob("", {2}, "{}", "otto"));
  Caller otto{.user = "otto", .projects = {{"default", Role::kMember}}};
  EXPECT_EQ(Old({.caller = otto}), std::vector<std::string>{"job-2 2"});
  otto.projects.clear();
  EXPECT_TRUE(Old({.caller = otto}).empty());
}

TEST_F(RemovalTest, CheckpointsGoAllOrNone) {
  const JobRecord job = EndedJob("", {2, 4, 6});
  EXPECT_TRUE(absl::IsNotFound(DeleteSteps(job, {2, 3}).status()));
  EXPECT_EQ(store().ListCheckpoints(job.id)->size(), 3u);
  const auto deleted = DeleteSteps(job, {4, 6});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->checkpoints.size(), 2u);
  EXPECT_EQ(deleted->left, "");
  const std::string directory = life_->paths.Directory(job);
  EXPECT_EQ(ListCheckpointSteps(directory), std::vector<int64_t>{2});
  EXPECT_EQ(store().Get(job.id)->last_checkpoint_path,
            CheckpointPath(directory, 2));
  EXPECT_TRUE(store().RemovedCheckpoints()->empty());
}

TEST_F(RemovalTest, ADeathAnywhereLeavesAllOrNothing) {
  for (const char* point : {"removal.output_marked", "removal.job_marked",
                            "removal.renamed", "removal.job_gone"}) {
    const JobRecord job = EndedJob("name", {2, 4});
    // The first one's result stays, for its mark is what it is about.
    const bool output = std::string(point) != "removal.output_marked";
    DieAt(point, [&] { Delete(job, output).IgnoreError(); });
    if (HasFatalFailure()) return;
    const auto now = store().Get(job.id);
    if (now.ok()) {
      EXPECT_STREQ(point, "removal.output_marked");
      EXPECT_EQ(ListCheckpointSteps(life_->paths.Directory(job)),
                (std::vector<int64_t>{2, 4}));
      // Its result is its own as before.
      EXPECT_TRUE(IsOutputOf(state_ + "/outputs/name", job.uid));
      ASSERT_TRUE(Delete(job, /*output=*/true).ok());
    }
    life_->remover.FinishAll();
    EXPECT_TRUE(NamesIn("jobs").empty()) << point;
    EXPECT_TRUE(NamesIn("outputs").empty()) << point;
    EXPECT_TRUE(store().RemovedJobs()->empty()) << point;
  }
}

TEST_F(RemovalTest, ADeathBetweenCheckpointsLeavesNoneHalf) {
  for (const char* point : {"removal.checkpoints_marked", "removal.renamed"}) {
    const JobRecord job = EndedJob("", {2, 4, 6});
    DieAt(point, [&] { DeleteSteps(job, {2, 4}).IgnoreError(); });
    if (HasFatalFailure()) return;
    EXPECT_EQ(store().ListCheckpoints(job.id)->size(), 1u) << point;
    life_->remover.FinishAll();
    EXPECT_EQ(ListCheckpointSteps(life_->paths.Directory(job)),
              std::vector<int64_t>{6});
    EXPECT_TRUE(store().RemovedCheckpoints()->empty()) << point;
  }
}

TEST_F(RemovalTest, ADiskThatFailsIsTriedAgainByTheNextStart) {
  for (const std::string site : {"removal.rename", "removal.remove"}) {
    const JobRecord job = EndedJob("name", {2});
    ASSERT_TRUE(ArmFileFaults(site + ":EIO:ever").ok());
    const auto deleted = Delete(job, /*output=*/true);
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    EXPECT_NE(deleted->left, "") << site;
    EXPECT_TRUE(absl::IsNotFound(store().Get(job.id).status()));
    life_->remover.FinishAll();
    EXPECT_FALSE(store().RemovedJobs()->empty()) << site;
    ASSERT_TRUE(ArmFileFaults("").ok());
    Restart();
    life_->remover.FinishAll();
    EXPECT_TRUE(NamesIn("jobs").empty()) << site;
    EXPECT_TRUE(NamesIn("outputs").empty()) << site;
    EXPECT_TRUE(store().RemovedJobs()->empty()) << site;
  }
}

TEST_F(RemovalTest, CheckpointsThatADiskKeepsAreTriedAgain) {
  const JobRecord job = EndedJob("", {2, 4});
  for (const std::string site : {"removal.rename", "removal.remove"}) {
    const int64_t step = site == "removal.rename" ? 2 : 4;
    ASSERT_TRUE(ArmFileFaults(site + ":EIO:ever").ok());
    EXPECT_NE(DeleteSteps(job, {step})->left, "") << site;
    ASSERT_TRUE(ArmFileFaults("").ok());
    Restart();
    life_->remover.FinishAll();
    EXPECT_TRUE(store().RemovedCheckpoints()->empty()) << site;
  }
  EXPECT_TRUE(ListCheckpointSteps(life_->paths.Directory(job)).empty());
}

TEST_F(RemovalTest, WithoutItsMarkAResultsJobStays) {
  for (const char* kind : {"EIO", "ENOSPC"}) {
    const JobRecord job = EndedJob("name", {2});
    ASSERT_TRUE(ArmFileFaults(absl::StrCat("removal.mark:", kind)).ok());
    EXPECT_FALSE(Delete(job).ok()) << kind;
    EXPECT_TRUE(store().Get(job.id).ok()) << kind;
    EXPECT_TRUE(IsOutputOf(state_ + "/outputs/name", job.uid));
    ASSERT_TRUE(Delete(job, /*output=*/true).ok());
  }
}

TEST_F(RemovalTest, AResultThatIsThereAgainIsAnothers) {
  const JobRecord job = EndedJob("name", {});
  ASSERT_TRUE(ArmFileFaults("removal.rename:EIO").ok());
  ASSERT_NE(Delete(job, /*output=*/true)->left, "");
  fs::remove_all(state_ + "/outputs/name");
  const JobRecord next = EndedJob("name", {});
  life_->remover.FinishAll();
  EXPECT_TRUE(store().RemovedJobs()->empty());
  EXPECT_TRUE(IsOutputOf(state_ + "/outputs/name", next.uid));
}

// --- what lies on the disk ---

class UsageTest : public RemovalTest {
 protected:
  // All pages.
  std::vector<DiskPart> Usage(DiskUsageQuery query) {
    std::vector<DiskPart> parts;
    do {
      const auto page = life_->keeper.DiskUsage(query);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) return parts;
      EXPECT_GT(page->disk_total_bytes, 0);
      parts.insert(parts.end(), page->parts.begin(), page->parts.end());
      query.page_token = page->next_page_token;
      ++pages_;
    } while (!query.page_token.empty());
    return parts;
  }
  static Caller Admin() { return {.user = "root", .admin = true}; }
  static Caller Member(const std::string& project) {
    return {.user = "otto", .projects = {{project, Role::kViewer}}};
  }
  static std::set<std::string> Texts(const std::vector<DiskPart>& parts) {
    std::set<std::string> texts;
    for (const DiskPart& part : parts) {
      if (part.kind == DiskKind::kStore) continue;
      texts.insert(absl::StrCat(static_cast<int>(part.kind), " ", part.name,
                                " ", part.owner, " ", part.project, " ",
                                part.bytes));
    }
    return texts;
  }
  void Export(const std::string& name, const OutputMark& mark) {
    Write(state_ + "/outputs/" + name + "/model.safetensors", 30);
    std::ofstream(state_ + "/outputs/" + name + "/" + kOutputOwnerName)
        << ExportOwnerJson(mark);
  }

  int pages_ = 0;
};

TEST_F(UsageTest, EachSeesWhatIsHisProjects) {
  const JobRecord job = EndedJob("name", {2, 4});
  const std::string directory = life_->paths.Directory(job);
  Write(directory + "/checkpoint-4.corrupt/model.safetensors", 11);
  Export("hers", {.project = "default"});
  Export("nobodys", {});
  Export("ottos", {.user = "otto"});
  const int64_t mark =
      static_cast<int64_t>(ExportOwnerJson({.project = "default"}).size());
  const int64_t job_mark =
      static_cast<int64_t>(OutputOwnerJson(job.id, job.uid).size());
  const std::string name = "projects/default/fineTuningJobs/job-1 anna default";
  const std::set<std::string> seen = {
      absl::StrCat("1 ", name, " 211"),
      absl::StrCat("2 ", name, " ", 50 + job_mark),
      absl::StrCat("3 ", name, " 20"),
      absl::StrCat("4 ", name, " 7"),
      absl::StrCat("5 hers  default ", 30 + mark),
      "7    0"};
  std::set<std::string> in_default =
      Texts(Usage({.caller = Member("default")}));
  const std::string ottos = absl::StrCat(
      "5 ottos otto  ", 30 + ExportOwnerJson({.user = "otto"}).size());
  EXPECT_EQ(in_default.erase(ottos), 1u);
  EXPECT_EQ(in_default, seen);
  EXPECT_EQ(Texts(Usage({.caller = Member("vision")})),
            (std::set<std::string>{ottos, "7    0"}));
  EXPECT_EQ(Usage({.caller = Member("default"), .project = "vision"}).size(),
            0u);
  EXPECT_EQ(Texts(Usage({.caller = Admin()})).size(), seen.size() + 2);
  const auto of_project =
      Texts(Usage({.caller = Admin(), .project = "default"}));
  EXPECT_EQ(of_project.size(), seen.size() - 1);
}

TEST_F(UsageTest, WhatHasSeveralNamesCountsOnceInAll) {
  const JobRecord job = EndedJob("", {});
  const std::string tokens =
      life_->paths.Directory(job) + "/data/train/tokens.u32";
  fs::create_hard_link(tokens, state_ + "/datasets/tokens.u32");
  // With the cache: the job's owner does not learn who else uses it.
  int64_t data = 0;
  for (const DiskPart& part : Usage({.caller = Admin()})) {
    EXPECT_NE(part.kind, DiskKind::kPreparedData);
    if (part.kind == DiskKind::kPreparedCache) data += part.bytes;
  }
  EXPECT_EQ(data, 20);
}

TEST_F(UsageTest, ACallerHasOneCallAtATime) {
  const JobRecord job = EndedJob("name", {2});
  DiskKeeper* keeper = nullptr;
  std::vector<absl::Status> nested;
  int depth = 0;
  const auto usage = [&](const char* user) {
    nested.push_back(keeper->DiskUsage({.caller = {.user = user}}).status());
  };
  const auto during = [&](const std::string&) {
    if (++depth == 1) {
      usage("anna");
      usage("otto");
      // Two go on within this one, and no third.
      nested.push_back(
          keeper->DeleteJob({.job = job, .who = "otto", .look_only = true})
              .status());
    } else {
      usage("ella");
    }
    return absl::OkStatus();
  };
  DiskKeeper own({.store = *life_->store,
                  .paths = life_->paths,
                  .remover = life_->remover},
                 {.check_over = during, .gone = [](const std::string&) {}});
  keeper = &own;
  const std::string anna = Caller{.user = "anna"}.owner();
  EXPECT_TRUE(own.DeleteJob({.job = job, .who = anna, .look_only = true}).ok());
  ASSERT_EQ(nested.size(), 4u);
  EXPECT_TRUE(absl::IsAborted(nested[0])) << nested[0];
  EXPECT_TRUE(nested[1].ok()) << nested[1];
  EXPECT_TRUE(absl::IsAborted(nested[2])) << nested[2];  // ella's
  EXPECT_TRUE(nested[3].ok()) << nested[3];
  EXPECT_TRUE(own.DiskUsage({.caller = {.user = "anna"}}).ok());
}

// A result whose name was taken lies beside it, and what took the name is
// somebody else's.
TEST_F(UsageTest, AResultIsFoundByItsMarkAlone) {
  const JobRecord job = EndedJob("name", {2});
  const std::string taken = state_ + "/outputs/name";
  const std::string own = taken + "-" + job.uid;
  fs::rename(taken, own);
  Write(taken + "/model.safetensors", 5);  // an admin's, without a mark
  JobRecord moved = job;
  moved.output_path = own;
  EXPECT_EQ(FindOutput(life_->paths, moved), own);
  moved.output_path.clear();  // cancelled between the rename and the record
  EXPECT_EQ(FindOutput(life_->paths, moved), own);
  fs::remove_all(own);
  EXPECT_EQ(FindOutput(life_->paths, moved), "");
  moved.output_path = own;
  EXPECT_EQ(FindOutput(life_->paths, moved), "");
}

TEST_F(UsageTest, UploadsWithTheSameContentsCountOnce) {
  const std::string text(5000, 'a');
  const UploadedFiles files = {{"a.jsonl", text.size(), Sha256Of(text)}};
  const auto reads = [](const std::string&) { return true; };
  for (const char* owner : {"anna", "otto"}) {
    const auto begun = life_->uploads->Create(
        {.name = std::string("of-") + owner, .owner = owner, .files = files},
        reads);
    ASSERT_TRUE(begun.ok()) << begun.status();
    if (begun->received[0] < text.size()) {
      ASSERT_TRUE(life_->uploads->PutChunk(begun->record.id, 0, 0, text).ok());
    }
    ASSERT_TRUE(life_->uploads->Finish(begun->record.id)->finished());
    clock_.Advance(absl::Seconds(1));
  }
  // What has only half come counts as far as it came.
  const auto half = life_->uploads->Create(
      {.name = "half",
       .owner = "anna",
       .files = {{"b.jsonl", 9000, Sha256Of("another")}}},
      reads);
  ASSERT_TRUE(half.ok());
  ASSERT_TRUE(
      life_->uploads->PutChunk(half->record.id, 0, 0, std::string(70, 'b'))
          .ok());
  int64_t bytes = 0;
  int count = 0;
  for (const DiskPart& part : Usage({.caller = Admin()})) {
    if (part.kind != DiskKind::kUpload) continue;
    bytes += part.bytes;
    ++count;
  }
  EXPECT_EQ(count, 3);
  EXPECT_EQ(bytes, 5070);
  EXPECT_EQ(Usage({.caller = Member("vision")}).size(), 2u);
}

TEST_F(UsageTest, ManyComePageByPage) {
  constexpr int kJobs = static_cast<int>(kCountedOfPage) + 5;
  for (int i = 0; i < kJobs; ++i) MakeJob("", {});
  for (int i = 0; i < kJobs; ++i) {
    Export(absl::StrCat("export-", i), {.project = "default"});
  }
  std::set<std::string> jobs, exports;
  for (const DiskPart& part : Usage({.caller = Admin()})) {
    if (part.kind == DiskKind::kLogs) {
      EXPECT_TRUE(jobs.insert(part.name).second);
    }
    if (part.kind == DiskKind::kExport) {
      EXPECT_TRUE(exports.insert(part.name).second);
    }
  }
  EXPECT_EQ(jobs.size(), static_cast<size_t>(kJobs));
  EXPECT_EQ(exports.size(), static_cast<size_t>(kJobs));
  EXPECT_EQ(pages_, 4);
  for (const char* token : {"x", "jobs:x", "jobs:-1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        life_->keeper.DiskUsage({.page_token = token}).status()));
  }
}

TEST_F(UsageTest, ADeepOrLongTreeIsCountedInPart) {
  std::string deep = state_ + "/deep";
  for (int i = 0; i <= kMaxCountedDepth; ++i) deep += "/d";
  Write(deep + "/file", 5);
  EXPECT_TRUE(CountTree(state_ + "/deep").partial);
  EXPECT_EQ(CountTree(state_ + "/deep").shared, 0);
  EXPECT_FALSE(CountTree(state_ + "/jobs").partial);
  EXPECT_FALSE(CountTree(state_ + "/nothing").partial);
}

}  // namespace
}  // namespace roundhouse
