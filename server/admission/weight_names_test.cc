#include "server/admission/weight_names.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "server/access/accounts.h"
#include "server/admission/admission_test_fixture.h"
#include "server/admission/export_names.h"
#include "server/admission/sample_names.h"
#include "server/spec/spec_error.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

class WeightNamesTest : public AdmissionTest {
 protected:
  const WeightNames& names() { return admission_->names(); }
  static inline const NameUser kAll = {kAnyone};
};

TEST_F(WeightNamesTest, APathIsLookedUpUnderTheDataRoots) {
  EXPECT_EQ(*names().ResolvePath("dataset", "d.jsonl", PathKind::kFile, kAll),
            root_ + "/data/d.jsonl");
  EXPECT_EQ(
      *names().resolver(kAll)("model_name_or_path", "m", PathKind::kModel),
      root_ + "/data/m");
}

// A finished dataset "dates" of the project with these files.
void Upload(Uploads& uploads, const std::string& project,
            const std::vector<std::string>& names) {
  NewUpload upload{.name = "dates", .project = project, .owner = "anna"};
  for (const std::string& name : names) {
    upload.files.push_back({.name = name, .bytes = 14, .sha256 = ""});
  }
  const auto begun =
      uploads.Create(upload, [](const std::string&) { return true; });
  ASSERT_TRUE(begun.ok()) << begun.status();
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(
        uploads.PutChunk(begun->record.id, i, 0, "{\"text\": \"b\"}\n").ok());
  }
  const auto done = uploads.Finish(begun->record.id);
  ASSERT_TRUE(done.ok() && done->finished()) << done.status();
}

TEST_F(WeightNamesTest, AnUploadIsItsFiles) {
  Upload(*uploads_, "default", {"a2.jsonl", "a10.jsonl"});
  std::string text = kJob;
  text.replace(text.find("d.jsonl"), 7, "dataset:dates");
  text.erase(text.find("output_name"));
  const auto job = Check(text);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<std::string>& files = job->spec.spec().dataset;
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(absl::EndsWith(files[0], "/a2.jsonl")) << files[0];
  EXPECT_TRUE(absl::StartsWith(files[0], uploads_->directory()));
  // The job has it.
  Store(*job);
  const auto found =
      uploads_->Find(UploadKind::kDataset, "default", "dates", 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(uploads_->Remove(found->record.id)));
  // A later version is another one.
  Upload(*uploads_, "default", {"b.jsonl"});
  EXPECT_TRUE(absl::EndsWith(Check(text)->spec.spec().dataset[0], "/b.jsonl"));
  text.replace(text.find("dataset:dates"), 13, "dataset:dates@1");
  EXPECT_EQ(Check(text)->spec.spec().dataset, files);
}

TEST_F(WeightNamesTest, AnUploadIsItsProjects) {
  ASSERT_TRUE(Accounts::Load(store_.get()).value()->AddProject("vision").ok());
  Upload(*uploads_, "vision", {"a.jsonl"});
  const NameUser stranger = {{.projects = {{"default", Role::kMember}}}};
  const NameUser viewer = {{.projects = {{"vision", Role::kViewer}}}};
  const NameUser member = {{.projects = {{"vision", Role::kMember}}}};
  const auto resolve = [&](const std::string& name, const NameUser& user) {
    return names().ResolvePath("dataset", name, PathKind::kDirectory, user);
  };
  EXPECT_TRUE(resolve("dataset:vision/dates", member).ok());
  EXPECT_TRUE(resolve("dataset:dates", member).ok());
  NameUser of_two = member;
  of_two.caller.projects = {{"vision", Role::kMember},
                            {"speech", Role::kMember}};
  EXPECT_TRUE(Says(resolve("dataset:dates", of_two).status(),
                   "you are in several, say which: speech, vision"));
  for (const NameUser& user : {stranger, viewer}) {
    EXPECT_TRUE(absl::IsPermissionDenied(
        resolve("dataset:vision/dates", user).status()));
  }
  EXPECT_EQ(ErrorReason(resolve("dataset:dates", stranger).status()),
            FieldReason::kPathNotFound);
  EXPECT_EQ(ErrorReason(resolve("dataset:../x", member).status()),
            FieldReason::kInvalidValue);
  NameUser admin = kAll;
  EXPECT_FALSE(resolve("dataset:dates", admin).ok());
  admin.project = "vision";
  EXPECT_TRUE(resolve("dataset:dates", admin).ok());
  // By its path, too.
  const std::string path = *resolve("dataset:vision/dates", member);
  EXPECT_TRUE(resolve(path, member).ok());
  EXPECT_FALSE(resolve(path, viewer).ok());
  EXPECT_FALSE(resolve(path, stranger).ok());
  EXPECT_FALSE(resolve(uploads_->directory(), member).ok());
}

TEST_F(WeightNamesTest, ANameLikeOneThatIsThereIsMeant) {
  const auto found =
      names().ResolvePath("dataset", "e.jsonl", PathKind::kFile, kAll);
  EXPECT_EQ(ErrorReason(found.status()), FieldReason::kPathNotFound);
  EXPECT_TRUE(Says(found.status(), "did you mean ")) << found.status();
}

TEST_F(WeightNamesTest, AJobIsFoundByItsIdAndByItsOutputsName) {
  const JobRecord job = Store(*Check(kJob));
  EXPECT_EQ(names().FindJob(job.id)->id, job.id);
  EXPECT_EQ(names().FindJob("out")->id, job.id);
  EXPECT_TRUE(absl::IsNotFound(names().FindJob("other").status()));
}

TEST_F(WeightNamesTest, AJobsWeightsAreItsOutputOrACheckpoint) {
  const JobRecord job = Store(*Check(kJob));
  const auto none =
      names().FindWeights("source", job.id, PathKind::kModel, kAll);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->path, "");
  EXPECT_EQ(none->job->id, job.id);
  const std::string checkpoint =
      admission_->paths().Directory(job) + "/checkpoint-40";
  const std::string name = job.id + "/checkpoint-40";
  EXPECT_TRUE(
      Says(names().FindWeights("source", name, PathKind::kModel, kAll).status(),
           "has no checkpoint-40; it has no checkpoints"));
  std::filesystem::create_directories(checkpoint);
  EXPECT_EQ(names().FindWeights("source", name, PathKind::kModel, kAll)->path,
            checkpoint);
  EXPECT_EQ(names().FindWeights("source", "m", PathKind::kModel, kAll)->path,
            root_ + "/data/m");
}

TEST_F(WeightNamesTest, AnExportGoesToANameThatIsFree) {
  const ExportNames& exports = admission_->exports();
  const auto plan = [&](const std::string& output) {
    return exports.Plan({.caller = kAnyone, .source = "m", .output = output})
        .status();
  };
  EXPECT_TRUE(Says(plan("a b"), "does not end in a name")) << plan("a b");
  EXPECT_TRUE(Says(plan("gone/x"), "make it first")) << plan("gone/x");
  const std::string there = root_ + "/data/m";
  EXPECT_TRUE(absl::IsAlreadyExists(plan(there))) << plan(there);
  const std::string own = root_ + "/state/jobs/x";
  EXPECT_TRUE(Says(plan(own), "is the server's own")) << plan(own);
}

TEST_F(WeightNamesTest, AJobWithoutWeightsHasNothingToSample) {
  const JobRecord job = Store(*Check(kJob));
  const auto source =
      OpenNamedSample(names(), admission_->roots(), job.id, kAll);
  EXPECT_EQ(ErrorReason(source.status()), FieldReason::kIllegalState);
  EXPECT_TRUE(Says(source.status(), "its first checkpoint comes at step 5"))
      << source.status();
}

// A job of project vision that has ended, with all that it made.
class OthersNamesTest : public WeightNamesTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_
                    ->WriteWith([](Database* db) {
                      return db->Execute(
                          "INSERT INTO projects VALUES ('vision', 0)");
                    })
                    .ok());
    const auto made = store_->Create({.text = "t",
                                      .resolved = Check(kJob)->spec.ToJson(),
                                      .output_name = "out",
                                      .owner = "mary",
                                      .project = "vision"});
    ASSERT_TRUE(made.ok()) << made.status();
    output_ = root_ + "/state/outputs/out";
    directory_ = root_ + "/state/jobs/" + made->uid;
    for (const std::string& model : {output_, directory_ + "/checkpoint-4"}) {
      std::filesystem::create_directories(model);
      WriteTestFile(model + "/config.json", kConfig);
    }
    WriteTestFile(output_ + "/roundhouse.json",
                  OutputOwnerJson(made->id, made->uid));
    WriteTestFile(directory_ + "/samples.jsonl", "{}\n");
    ASSERT_TRUE(store_->SetDetails(made->id, {.output_path = output_}).ok());
    ASSERT_TRUE(
        store_
            ->AddCheckpoint(made->id,
                            {.step = 4, .path = directory_ + "/checkpoint-4"})
            .ok());
    job_ = *store_->Get(made->id);
  }

  static NameUser In(const std::string& project, Role has,
                     Role needed = Role::kMember) {
    return {{.user = "otto", .projects = {{project, has}}}, needed};
  }

  JobRecord job_;
  std::string output_;
  std::string directory_;
};

TEST_F(OthersNamesTest, WhatAJobMadeIsItsProjectsHoweverItIsNamed) {
  const std::string uid = job_.uid;
  const std::vector<std::pair<std::string, PathKind>> paths = {
      {"job:out", PathKind::kModel},
      {"job:job-1", PathKind::kDirectory},
      {output_, PathKind::kModel},
      {"out", PathKind::kModel},
      {"./out/", PathKind::kDirectory},
      {output_ + "/config.json", PathKind::kFile},
      {directory_ + "/samples.jsonl", PathKind::kFile},
      {uid + "/samples.jsonl", PathKind::kFile},
      {"other/../" + uid + "/samples.jsonl", PathKind::kFile},
      {root_ + "/state/jobs/other/../" + uid + "/samples.jsonl",
       PathKind::kFile},
      {root_ + "/data/../state/jobs/" + uid + "/samples.jsonl",
       PathKind::kFile},
      {uid + "/checkpoint-4", PathKind::kModel},
      {root_ + "/state/jobs", PathKind::kDirectory},
      {root_ + "/state/outputs", PathKind::kDirectory}};
  std::filesystem::create_directory(root_ + "/state/jobs/other");
  for (const auto& [path, kind] : paths) {
    const auto found =
        names().ResolvePath("f", path, kind, In("speech", Role::kMember));
    EXPECT_FALSE(found.ok()) << path;
    // By a job's id he is told; by another name not even that it is there.
    EXPECT_EQ(absl::IsPermissionDenied(found.status()), path == "job:job-1")
        << path << ": " << found.status();
    const bool outside = absl::StrContains(path, "/data/..");
    const bool folder =
        path == root_ + "/state/jobs" || path == root_ + "/state/outputs";
    EXPECT_EQ(
        names().ResolvePath("f", path, kind, In("vision", Role::kMember)).ok(),
        !outside && !folder)
        << path;
    EXPECT_EQ(names().ResolvePath("f", path, kind, kAll).ok(), !outside)
        << path;
  }
}

TEST_F(OthersNamesTest, APathOfAnotherLooksLikeOneToNothing) {
  const NameUser stranger = In("speech", Role::kMember);
  for (const std::string& there :
       {output_ + "/config.json", std::string("out/config.json"),
        directory_ + "/samples.jsonl", job_.uid + "/samples.jsonl"}) {
    const std::string none =
        there.substr(0, there.rfind('/')) + "/nothing_of_the_kind";
    const auto told = [&](const std::string& path) {
      const absl::Status status =
          names().ResolvePath("f", path, PathKind::kFile, stranger).status();
      EXPECT_EQ(ErrorReason(status), FieldReason::kPathNotFound);
      std::string text(status.message());
      return text.replace(text.find(path), path.size(), "PATH");
    };
    EXPECT_EQ(told(there), told(none));
  }
}

// A folder in the hub's cache may be a project's.
TEST_F(OthersNamesTest, TheHubsCacheHasRootsToo) {
  const std::string snapshot =
      root_ + "/hub/models--lab--gated/snapshots/0123456789abcdef";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(root_ + "/hub/models--lab--gated/refs");
  WriteTestFile(snapshot + "/config.json", kConfig);
  WriteTestFile(root_ + "/hub/models--lab--gated/refs/main",
                "0123456789abcdef");
  admission_ = *Admission::Create(
      {.room = {.device_count = 2, .state_dir = root_ + "/state"},
       .data_roots = {root_ + "/data"},
       .owned_roots = {{{RootOwner::Kind::kProject, "vision"},
                        root_ + "/hub/models--lab--gated"}},
       .hf_cache = root_ + "/hub"},
      *store_);
  const auto refused = [this](const std::string& name) {
    return names()
        .ResolvePath("f", name, PathKind::kModel, In("speech", Role::kMember))
        .status();
  };
  EXPECT_EQ(
      absl::StrReplaceAll(refused("lab/gated").message(), {{"gated", "other"}}),
      refused("lab/other").message());
  for (const std::string& name : {std::string("lab/gated"), snapshot}) {
    EXPECT_FALSE(refused(name).ok()) << name;
    const auto found = names().ResolvePath("f", name, PathKind::kModel,
                                           In("vision", Role::kMember));
    EXPECT_TRUE(found.ok()) << found.status();
  }
}

// A stranger asks for a file where a folder is, and the other way round.
TEST_F(OthersNamesTest, WhatAnothersPathIsIsNotTold) {
  const NameUser stranger = In("speech", Role::kMember);
  const std::vector<std::pair<std::string, PathKind>> paths = {
      {"out", PathKind::kFile},
      {output_, PathKind::kFile},
      {output_ + "/config.json", PathKind::kDirectory},
      {output_ + "/config.json", PathKind::kModel}};
  for (const auto& [path, kind] : paths) {
    const auto found = names().ResolvePath("f", path, kind, stranger);
    EXPECT_TRUE(Says(found.status(), "does not exist")) << found.status();
    const auto told =
        names().ResolvePath("f", path, kind, In("vision", Role::kMember));
    EXPECT_TRUE(Says(told.status(), "is not a ")) << told.status();
  }
}

TEST_F(OthersNamesTest, AViewerLooksAndMakesNothingOfIt) {
  const NameUser looks = In("vision", Role::kViewer, Role::kViewer);
  const NameUser takes = In("vision", Role::kViewer, Role::kMember);
  for (const std::string& name : {std::string("job:out"), output_}) {
    EXPECT_TRUE(names().ResolvePath("f", name, PathKind::kModel, looks).ok());
    const auto taken = names().ResolvePath("f", name, PathKind::kModel, takes);
    EXPECT_TRUE(absl::IsPermissionDenied(taken.status())) << taken.status();
    EXPECT_TRUE(Says(taken.status(), "takes a member")) << taken.status();
  }
}

TEST_F(OthersNamesTest, WeightsByEveryWayToWriteAJob) {
  const NameUser stranger = In("speech", Role::kMember);
  const NameUser member = In("vision", Role::kMember);
  for (const char* name :
       {"job-1", "job:job-1", "job-1/checkpoints/4", "job:job-1/checkpoint-4",
        "projects/vision/fineTuningJobs/job-1",
        "projects/vision/fineTuningJobs/job-1/checkpoints/4"}) {
    const auto no =
        names().FindWeights("source", name, PathKind::kModel, stranger);
    EXPECT_TRUE(absl::IsPermissionDenied(no.status())) << name << no.status();
    EXPECT_TRUE(
        names().FindWeights("source", name, PathKind::kModel, member).ok())
        << name;
  }
  // An output's name is not told to be a job's.
  for (const std::string end : {"", "/checkpoint-4"}) {
    const auto hidden = names().FindWeights("source", "job:out" + end,
                                            PathKind::kModel, stranger);
    const auto nowhere = names().FindWeights("source", "job:put" + end,
                                             PathKind::kModel, stranger);
    EXPECT_TRUE(absl::IsNotFound(hidden.status())) << hidden.status();
    EXPECT_EQ(absl::StrReplaceAll(hidden.status().message(), {{"out", "put"}}),
              nowhere.status().message());
    EXPECT_TRUE(
        names()
            .FindWeights("source", "job:out" + end, PathKind::kModel, member)
            .ok());
  }
  const auto wrong =
      names().FindWeights("source", "projects/speech/fineTuningJobs/job-1",
                          PathKind::kModel, member);
  EXPECT_TRUE(absl::IsNotFound(wrong.status())) << wrong.status();
}

// Whoever calls an output like a model of everybody's takes it from nobody.
TEST_F(OthersNamesTest, ANameOfAnothersOutputIsNoJobs) {
  const std::string model = root_ + "/data/out";
  std::filesystem::create_directories(model);
  WriteTestFile(model + "/config.json", kConfig);
  const auto his = names().FindWeights("source", "out", PathKind::kModel,
                                       In("speech", Role::kMember));
  ASSERT_TRUE(his.ok()) << his.status();
  EXPECT_EQ(his->path, model);
  EXPECT_EQ(names()
                .FindWeights("source", "out", PathKind::kModel,
                             In("vision", Role::kMember))
                ->path,
            output_);
}

TEST_F(OthersNamesTest, AnExportAmongTheOutputsKeepsItsOwner) {
  const std::string export_path = root_ + "/state/outputs/exported";
  std::filesystem::create_directories(export_path);
  const auto may = [&](const NameUser& user) {
    return names()
        .ResolvePath("f", export_path, PathKind::kDirectory, user)
        .ok();
  };
  EXPECT_FALSE(may(In("vision", Role::kMember)));  // nobody knows whose it is
  EXPECT_TRUE(may(kAll));
  WriteTestFile(export_path + "/roundhouse.json",
                ExportOwnerJson({.project = "vision"}));
  EXPECT_TRUE(may(In("vision", Role::kMember)));
  EXPECT_FALSE(may(In("speech", Role::kMember)));
  WriteTestFile(export_path + "/roundhouse.json",
                ExportOwnerJson({.user = "otto"}));
  EXPECT_TRUE(may(In("speech", Role::kMember)));
  WriteTestFile(export_path + "/roundhouse.json",
                ExportOwnerJson({.user = "mary"}));
  EXPECT_FALSE(may(In("vision", Role::kMember)));
}

// An adapter's config names its base, which its reader may not use.
TEST_F(OthersNamesTest, AnAdaptersBaseIsAskedForToo) {
  const std::string adapter = root_ + "/data/adapter";
  std::filesystem::create_directories(adapter);
  WriteTestFile(adapter + "/adapter_config.json",
                R"({"base_model_name_or_path": "job:out", "peft_type": "LORA",)"
                R"( "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})");
  WriteTestFile(adapter + "/adapter_model.safetensors", "");
  const NameUser stranger = In("speech", Role::kMember);
  const auto sampled =
      OpenNamedSample(names(), admission_->roots(), "adapter", stranger);
  EXPECT_TRUE(Says(sampled.status(), "there is no job \"out\""))
      << sampled.status();
  const auto exported = admission_->exports().Plan({.caller = stranger.caller,
                                                    .source = "adapter",
                                                    .kind = ExportKind::kMerged,
                                                    .output = "mine"});
  EXPECT_TRUE(Says(exported.status(), "there is no job \"out\""))
      << exported.status();
}

}  // namespace
}  // namespace roundhouse
