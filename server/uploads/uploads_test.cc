// Uploads over a real store and a real disk.  A death of the daemon is the end
// of one Uploads and the beginning of another on the same files, at each place
// where a fault can stop one.
#include "server/uploads/uploads.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

bool ReadsAll(const std::string&) { return true; }
bool ReadsNothing(const std::string&) { return false; }

std::string RandomText(size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class UploadsTest : public testing::Test {
 protected:
  UploadsTest() {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    store_ = *JobStore::Open(
        {.path = dir_ / "jobs.db", .fault = [this] { return store_fault_; }});
    Open();
  }
  ~UploadsTest() override { ArmFileFaults("").IgnoreError(); }

  void Open() {
    uploads_.reset();
    auto opened = Uploads::Open(
        {.state_dir = dir_,
         .bytes_of = [this](const std::string&) { return limit_; },
         .free_bytes = [this](const std::string&) { return free_; }},
        store_.get(), clock_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    uploads_ = *std::move(opened);
  }

  static UploadedFile FileOf(const std::string& name, const std::string& text) {
    return {name, text.size(), Sha256Of(text)};
  }
  static NewUpload Named(const std::string& name, UploadedFiles files,
                         const std::string& owner = "anna") {
    return {.name = name, .owner = owner, .files = std::move(files)};
  }

  // All chunks of a file from `from` on.
  absl::Status Send(const std::string& id, size_t file, const std::string& text,
                    uint64_t from = 0) {
    for (uint64_t at = from; at < text.size(); at += kUploadChunkBytes) {
      const auto put =
          uploads_->PutChunk(id, file, at, text.substr(at, kUploadChunkBytes));
      if (!put.ok()) return put.status();
    }
    return absl::OkStatus();
  }
  absl::StatusOr<UploadProgress> FinishAll(const std::string& id) {
    while (true) {
      auto progress = uploads_->Finish(id);
      if (!progress.ok() || progress->finished()) return progress;
    }
  }
  UploadRecord MustUpload(const std::string& name, const std::string& text,
                          const std::string& owner = "anna") {
    const auto begun = uploads_->Create(
        Named(name, {FileOf("a.jsonl", text)}, owner), ReadsAll);
    EXPECT_TRUE(begun.ok()) << begun.status();
    if (begun->finished()) return begun->record;
    EXPECT_TRUE(Send(begun->record.id, 0, text, begun->received[0]).ok());
    const auto done = FinishAll(begun->record.id);
    EXPECT_TRUE(done.ok()) << done.status();
    return done->record;
  }
  std::string Read(const UploadRecord& record, const std::string& name) {
    std::ifstream file(dir_ / "uploads/versions" / record.id / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string PartOf(const std::string& id, size_t index) const {
    return dir_ / "uploads/parts" / id / std::to_string(index);
  }
  size_t Inode(const UploadRecord& record) const {
    struct stat info = {};
    stat((dir_ / "uploads/versions" / record.id / "a.jsonl").c_str(), &info);
    return info.st_ino;
  }

  std::filesystem::path dir_;
  absl::Status store_fault_;
  std::unique_ptr<JobStore> store_;
  ManualClock clock_{SystemClock()};
  uint64_t limit_ = uint64_t{1} << 40;
  uint64_t free_ = uint64_t{1} << 40;
  std::unique_ptr<Uploads> uploads_;
};

TEST_F(UploadsTest, AFolderArrivesWholeUnderItsName) {
  const std::string big = RandomText((2 << 20) + 17, 1), small = "{}\n";
  const auto begun = uploads_->Create(
      Named("dates", {FileOf("train/a.jsonl", big), FileOf("b.jsonl", small),
                      FileOf("empty", "")}),
      ReadsAll);
  ASSERT_TRUE(begun.ok()) << begun.status();
  const std::string id = begun->record.id;
  EXPECT_TRUE(absl::IsNotFound(
      uploads_->Find(UploadKind::kDataset, "default", "dates", 0).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(uploads_->Finish(id).status()));
  ASSERT_TRUE(Send(id, 0, big).ok());
  ASSERT_TRUE(Send(id, 1, small).ok());
  const auto done = FinishAll(id);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->record.version, 1);
  const auto found =
      uploads_->Find(UploadKind::kDataset, "default", "dates", 0);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->directory, dir_ / "uploads/versions" / id);
  EXPECT_EQ(Read(done->record, "train/a.jsonl"), big);
  EXPECT_EQ(Read(done->record, "b.jsonl"), small);
  EXPECT_TRUE(
      std::filesystem::is_empty(dir_ / "uploads/versions" / id / "empty"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "uploads/parts" / id));
  struct stat info;
  ASSERT_EQ(stat((found->directory + "/b.jsonl").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(found->directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // A model of that name is something else, as is another project's.
  EXPECT_FALSE(uploads_->Find(UploadKind::kModel, "default", "dates", 0).ok());
  EXPECT_FALSE(uploads_->Find(UploadKind::kDataset, "x", "dates", 0).ok());
  EXPECT_FALSE(uploads_->PutChunk(id, 0, 0, "x").ok());
}

TEST_F(UploadsTest, ChunksMayComeInAnotherOrderButNotFarAhead) {
  const std::string text = RandomText(6 << 20, 2);
  const auto begun =
      uploads_->Create(Named("x", {FileOf("a.jsonl", text)}), ReadsAll);
  const std::string id = begun->record.id;
  const auto put = [&](uint64_t chunk) {
    return uploads_->PutChunk(id, 0, chunk << 20,
                              text.substr(chunk << 20, 1 << 20));
  };
  EXPECT_EQ(*put(2), 0u);
  EXPECT_EQ(*put(1), 0u);
  EXPECT_EQ(*put(2), 0u);
  EXPECT_TRUE(absl::IsOutOfRange(put(4).status()));
  EXPECT_EQ(*put(0), uint64_t{3} << 20);
  // What was taken is not taken again, whatever it says.
  EXPECT_EQ(*uploads_->PutChunk(id, 0, 5, "lies"), uint64_t{3} << 20);
  // Over a piece that came ahead.
  EXPECT_EQ(*put(4), uint64_t{3} << 20);
  EXPECT_EQ(*uploads_->PutChunk(id, 0, (3 << 20) + 100,
                                text.substr((3 << 20) + 100, 1 << 20)),
            uint64_t{3} << 20);
  EXPECT_EQ(*put(3), uint64_t{5} << 20);
  EXPECT_EQ(*put(5), uint64_t{6} << 20);
  const auto done = FinishAll(id);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Read(done->record, "a.jsonl"), text);
}

TEST_F(UploadsTest, PlacesThatAreNoneAreRefused) {
  const auto begun =
      uploads_->Create(Named("x", {FileOf("a", "abc")}), ReadsAll);
  const std::string& id = begun->record.id;
  EXPECT_TRUE(
      absl::IsInvalidArgument(uploads_->PutChunk(id, 1, 0, "a").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(uploads_->PutChunk(id, 0, 1, "abc").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      uploads_->PutChunk(id, 0, std::numeric_limits<uint64_t>::max(), "a")
          .status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(uploads_->PutChunk(id, 0, 0, "").status()));
  EXPECT_TRUE(
      absl::IsNotFound(uploads_->PutChunk("../" + id, 0, 0, "a").status()));
}

TEST_F(UploadsTest, WhatIsNotWhatItWasSaidToBeComesAgain) {
  const auto begun =
      uploads_->Create(Named("x", {FileOf("a.jsonl", "abcd")}), ReadsAll);
  const std::string& id = begun->record.id;
  ASSERT_TRUE(Send(id, 0, "abXd").ok());
  const auto wrong = uploads_->Finish(id);
  EXPECT_TRUE(absl::IsFailedPrecondition(wrong.status()));
  EXPECT_NE(std::string(wrong.status().message()).find("a.jsonl"),
            std::string::npos);
  EXPECT_EQ(uploads_->Get(id)->received[0], 0u);
  ASSERT_TRUE(Send(id, 0, "abcd").ok());
  EXPECT_TRUE(FinishAll(id).ok());
}

// The disk lies, between what was hashed as it came and the end.
TEST_F(UploadsTest, AFileWithoutAGivenHashHasTheOneOfItsBytes) {
  const auto begun = uploads_->Create(
      Named("x", {{.name = "a.jsonl", .bytes = 4, .sha256 = ""}}), ReadsAll);
  ASSERT_TRUE(Send(begun->record.id, 0, "abcd").ok());
  const auto done = FinishAll(begun->record.id);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->record.files->at(0).sha256, Sha256Of("abcd"));
}

TEST_F(UploadsTest, TheSameAgainIsTheSameVersion) {
  const UploadRecord first = MustUpload("x", "one");
  const auto again = uploads_->Create(
      Named("x", {FileOf("a.jsonl", "one")}, "otto"), ReadsAll);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->record.id, first.id);
  // Also where the hashes were not known before.
  const auto begun = uploads_->Create(
      Named("x", {{.name = "a.jsonl", .bytes = 3, .sha256 = ""}}), ReadsAll);
  ASSERT_TRUE(Send(begun->record.id, 0, "one").ok());
  const auto same = FinishAll(begun->record.id);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->record.id, first.id);
  EXPECT_EQ(uploads_->List().size(), 1u);
}

TEST_F(UploadsTest, ALaterVersionChangesNoEarlierOne) {
  const UploadRecord first = MustUpload("x", "one");
  const UploadRecord second = MustUpload("x", "two");
  EXPECT_EQ(second.version, 2);
  EXPECT_EQ(Read(first, "a.jsonl"), "one");
  EXPECT_EQ(uploads_->Find(UploadKind::kDataset, "default", "x", 0)->record.id,
            second.id);
  EXPECT_EQ(uploads_->Find(UploadKind::kDataset, "default", "x", 1)->record.id,
            first.id);
  EXPECT_FALSE(uploads_->Find(UploadKind::kDataset, "default", "x", 3).ok());
}

// Whoever knows a hash does not get the file for it.
TEST_F(UploadsTest, ContentsAreSharedAmongThoseWhoMayReadThem) {
  const UploadRecord first = MustUpload("x", "shared text");
  const auto stranger = uploads_->Create(
      Named("y", {FileOf("a.jsonl", "shared text")}, "otto"), ReadsNothing);
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  EXPECT_EQ(stranger->received[0], 0u);
  const UploadRecord shared = MustUpload("z", "shared text");
  EXPECT_EQ(Inode(shared), Inode(first));
  EXPECT_EQ(uploads_->BytesOf("anna"), kMinFileBytes);
  // Neither takes the other's away.
  ASSERT_TRUE(uploads_->Remove(first.id).ok());
  EXPECT_EQ(Read(shared, "a.jsonl"), "shared text");
}

TEST_F(UploadsTest, ASharedFileIsNotWrittenToAfterARestart) {
  const std::string text = RandomText((5 << 20), 3);
  const UploadRecord first = MustUpload("x", text);
  const auto begun = uploads_->Create(
      Named("y", {FileOf("a.jsonl", text), FileOf("b", "b")}), ReadsAll);
  const std::string id = begun->record.id;
  EXPECT_EQ(begun->received[0], text.size());
  Open();
  EXPECT_EQ(uploads_->Get(id)->received[0], text.size());
  ASSERT_TRUE(Send(id, 0, std::string(text.size(), 'x')).ok());
  EXPECT_EQ(Read(first, "a.jsonl"), text);
  ASSERT_TRUE(Send(id, 1, "b").ok());
  EXPECT_TRUE(FinishAll(id).ok());
}

TEST_F(UploadsTest, ItGoesOnWhereItStoppedAfterADeath) {
  const std::string text = RandomText((9 << 20) + 5, 4);
  const NewUpload upload = Named("x", {FileOf("a.jsonl", text)});
  const auto begun = uploads_->Create(upload, ReadsAll);
  const std::string id = begun->record.id;
  ASSERT_TRUE(Send(id, 0, text.substr(0, 7 << 20)).ok());
  Open();
  const auto again = uploads_->Create(upload, ReadsAll);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->record.id, id);
  EXPECT_EQ(again->received[0], (uint64_t{7} << 20) - kUploadAheadBytes);
  ASSERT_TRUE(Send(id, 0, text, again->received[0]).ok());
  const auto done = FinishAll(id);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Read(done->record, "a.jsonl"), text);
}

// A hole that a power cut left is no file.
TEST_F(UploadsTest, WhatThePowerTookIsNoticed) {
  const std::string text = RandomText((6 << 20), 5);
  const auto begun =
      uploads_->Create(Named("x", {FileOf("a.jsonl", text)}), ReadsAll);
  const std::string id = begun->record.id;
  ASSERT_TRUE(Send(id, 0, text).ok());
  {
    std::fstream part(PartOf(id, 0));
    part.seekp(1000);
    part.write("\0\0\0\0", 4);
  }
  Open();
  ASSERT_TRUE(Send(id, 0, text, uploads_->Get(id)->received[0]).ok());
  absl::StatusOr<UploadProgress> done = FinishAll(id);
  EXPECT_TRUE(absl::IsFailedPrecondition(done.status())) << done.status();
  ASSERT_TRUE(Send(id, 0, text).ok());
  done = FinishAll(id);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Read(done->record, "a.jsonl"), text);
}

// At each place where finishing can stop, and again from the files it leaves.
TEST_F(UploadsTest, AFinishThatFailsOrDiesIsDoneAgain) {
  for (const char* fault :
       {"upload.part:EIO", "upload.part:ENOSPC:1:1", "upload.verify:EIO",
        "upload.folder:ENOSPC", "upload.folder:EIO:1:1", "upload.link:EIO",
        "upload.link:EIO:1:1", "upload.rename:EIO", "upload.remove:EIO",
        "store"}) {
    const std::string text = std::string("text for ") + fault;
    const std::string name = std::to_string(std::hash<std::string>()(fault));
    const NewUpload upload =
        Named(name, {FileOf("d/a.jsonl", text), FileOf("b", "b" + text)});
    const auto begun = uploads_->Create(upload, ReadsAll);
    const std::string id = begun->record.id;
    ASSERT_TRUE(Send(id, 0, text).ok());
    ASSERT_TRUE(Send(id, 1, "b" + text).ok());
    Open();  // the hashes are gone, so the files are read
    if (fault == std::string("store")) {
      store_fault_ = absl::UnavailableError("fault");
    } else {
      ASSERT_TRUE(ArmFileFaults(fault).ok()) << fault;
    }
    const auto failed = FinishAll(id);
    ASSERT_TRUE(ArmFileFaults("").ok());
    store_fault_ = absl::OkStatus();
    Open();
    const auto found = uploads_->Find(UploadKind::kDataset, "default", name, 0);
    EXPECT_EQ(found.ok(), failed.ok()) << fault;
    const auto done = FinishAll(id);
    ASSERT_TRUE(done.ok()) << fault << ": " << done.status();
    EXPECT_EQ(Read(done->record, "d/a.jsonl"), text);
    EXPECT_EQ(Read(done->record, "b"), "b" + text);
    EXPECT_TRUE(std::filesystem::is_empty(dir_ / "uploads/building"));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "uploads/parts" / id)) << fault;
    EXPECT_TRUE(uploads_->findings().empty());
  }
}

TEST_F(UploadsTest, ARemovalThatDiesIsEndedByTheNextStart) {
  const UploadRecord record = MustUpload("x", "text");
  ASSERT_TRUE(ArmFileFaults("upload.remove:EIO:ever").ok());
  ASSERT_TRUE(uploads_->Remove(record.id).ok());
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_TRUE(absl::IsNotFound(uploads_->Get(record.id).status()));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "uploads/versions" / record.id));
  Open();
  EXPECT_FALSE(std::filesystem::exists(dir_ / "uploads/versions" / record.id));
  EXPECT_TRUE(uploads_->findings().empty());
  // What is not written down has not happened.
  const UploadRecord kept = MustUpload("x", "text");
  store_fault_ = absl::UnavailableError("fault");
  EXPECT_FALSE(uploads_->Remove(kept.id).ok());
  store_fault_ = absl::OkStatus();
  EXPECT_TRUE(uploads_->Find(UploadKind::kDataset, "default", "x", 0).ok());
}

TEST_F(UploadsTest, AJobThatHasNotEndedKeepsWhatItUses) {
  const UploadRecord record = MustUpload("x", "text");
  const auto job =
      store_->Create({.text = "t",
                      .resolved = "{\"dataset\":[\"" + uploads_->directory() +
                                  "/" + record.id + "/a.jsonl\"]}"});
  ASSERT_TRUE(job.ok());
  const absl::Status refused = uploads_->Remove(record.id);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(std::string(refused.message()).find(job->id), std::string::npos);
  EXPECT_TRUE(uploads_->Find(UploadKind::kDataset, "default", "x", 0).ok());
  ASSERT_TRUE(store_->Transition(job->id, JobState::kFailed, {}).ok());
  EXPECT_TRUE(uploads_->Remove(record.id).ok());
  EXPECT_FALSE(uploads_->Find(UploadKind::kDataset, "default", "x", 0).ok());
}

TEST_F(UploadsTest, LimitsSayWhatIsUsed) {
  limit_ = 10'000;
  MustUpload("x", std::string(6'000, 'x'));
  const auto begin = [this](const std::string& name, size_t bytes) {
    return uploads_
        ->Create(Named(name, {FileOf("a", std::string(bytes, name[0]))}),
                 ReadsAll)
        .status();
  };
  EXPECT_EQ(begin("y", 5'000).message(),
            "disk_bytes of anna: 10000 at most, 6000 used, 5000 more asked "
            "for");
  EXPECT_TRUE(absl::IsResourceExhausted(begin("y", 5'000)));
  // One that arrives counts whole before it is there, and an empty one counts.
  limit_ = 6'000 + 2 * kMinFileBytes;
  ASSERT_TRUE(begin("y", kMinFileBytes).ok());
  ASSERT_TRUE(begin("z", 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(begin("0", 0)));
  limit_ = uint64_t{1} << 40;
  free_ = kUploadFreeBytes + 3 * kMinFileBytes;
  EXPECT_TRUE(absl::IsResourceExhausted(begin("z", 2 * kMinFileBytes + 1)));
  EXPECT_TRUE(begin("v", 2 * kMinFileBytes).ok());
  free_ = uint64_t{1} << 40;
  for (size_t i = 3; i < kMaxArrivingEach; ++i) {
    ASSERT_TRUE(uploads_
                    ->Create(Named("n" + std::to_string(i),
                                   {FileOf("a", std::to_string(i))}),
                             ReadsAll)
                    .ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      uploads_->Create(Named("more", {FileOf("a", "m")}), ReadsAll).status()));
}

// Whoever says that two files are equal has not sent them yet.
TEST_F(UploadsTest, EqualHashesCountOnceOnlyWhereTheyAreOneFile) {
  const uint64_t tera = uint64_t{1} << 40;
  const std::string hash = Sha256Of("x");
  ASSERT_TRUE(
      uploads_->Create(Named("x", {{"a", tera / 2, hash}}), ReadsAll).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      uploads_->Create(Named("y", {{"a", tera / 2 + 1, hash}}), ReadsAll)
          .status()));
  EXPECT_EQ(uploads_->BytesOf("anna"), tera / 2);
  EXPECT_EQ(uploads_->BytesOf("", "default"), tera / 2);
  EXPECT_EQ(uploads_->BytesOf("anna", "other"), 0u);
  // Finished ones that are two files count twice, also after a start.
  const std::string text(5'000, 'x');
  for (const char* name : {"v", "w"}) {
    const auto begun = uploads_->Create(
        Named(name, {FileOf("a.jsonl", text)}, "otto"), ReadsNothing);
    ASSERT_TRUE(Send(begun->record.id, 0, text).ok());
    ASSERT_TRUE(FinishAll(begun->record.id).ok());
  }
  EXPECT_EQ(uploads_->BytesOf("otto"), 10'000u);
  Open();
  EXPECT_EQ(uploads_->BytesOf("otto"), 10'000u);
}

TEST_F(UploadsTest, AnOwnerLeavesOthersRoomForFiles) {
  UploadedFiles files;
  for (size_t i = 0; i < kMaxUploadFiles; ++i) {
    files.push_back({std::to_string(i), 0, ""});
  }
  const auto begin = [&](size_t i, const std::string& owner) {
    return uploads_
        ->Create(Named("n" + std::to_string(i), files, owner), ReadsAll)
        .status();
  };
  const size_t most = kMaxUploadedFilesEach / kMaxUploadFiles;
  for (size_t i = 0; i < most; ++i) ASSERT_TRUE(begin(i, "anna").ok());
  const absl::Status over = begin(most, "anna");
  EXPECT_TRUE(absl::IsResourceExhausted(over)) << over;
  EXPECT_NE(std::string(over.message()).find("uploaded files of anna"),
            std::string::npos);
  EXPECT_TRUE(begin(most, "otto").ok());
}

TEST_F(UploadsTest, RoomIsAskedOfWhatIsNew) {
  std::vector<uint64_t> asked;
  absl::Status answer = absl::ResourceExhaustedError("no");
  const auto create = [&] {
    return uploads_
        ->Create(
            Named("x", {FileOf("a", std::string(5'000, 'a')), FileOf("b", "")}),
            ReadsAll,
            [&](uint64_t bytes) {
              asked.push_back(bytes);
              return answer;
            })
        .status();
  };
  EXPECT_EQ(create().message(), "no");
  EXPECT_TRUE(uploads_->List().empty());
  answer = absl::OkStatus();
  EXPECT_TRUE(create().ok());
  EXPECT_TRUE(create().ok());  // goes on
  EXPECT_EQ(asked, std::vector<uint64_t>(2, 5'000 + kMinFileBytes));
}

TEST_F(UploadsTest, OneThatCannotBeginLeavesNoRow) {
  ASSERT_TRUE(ArmFileFaults("upload.folder:ENOSPC").ok());
  EXPECT_FALSE(
      uploads_->Create(Named("x", {FileOf("a", "ab")}), ReadsAll).ok());
  ASSERT_TRUE(ArmFileFaults("").ok());
  Open();
  EXPECT_TRUE(uploads_->List().empty());
  EXPECT_EQ(uploads_->BytesOf("anna"), 0u);
}

// A check that hangs in the disk: here a part that is a pipe.
TEST_F(UploadsTest, ACheckHoldsUpNobodyElse) {
  const auto begin = [this](const std::string& name, const std::string& owner) {
    return uploads_->Create(Named(name, {FileOf("a.jsonl", name)}, owner),
                            ReadsAll);
  };
  const std::string id = begin("slow", "anna")->record.id;
  ASSERT_TRUE(Send(id, 0, "slow").ok());
  Open();  // the hash is gone, so that the file is read
  const std::string part = PartOf(id, 0);
  std::filesystem::remove(part);
  ASSERT_EQ(mkfifo(part.c_str(), 0600), 0);
  std::thread check([&] {
    absl::Status checked;
    do {
      checked = uploads_->Finish(id).status();
    } while (absl::IsAborted(checked));
    EXPECT_FALSE(checked.ok());
  });
  const std::string other = begin("other", "anna")->record.id;
  while (!absl::IsAborted(uploads_->Finish(other).status())) {
    std::this_thread::yield();
  }
  EXPECT_EQ(uploads_->Get(id)->received[0], 4u);
  EXPECT_EQ(begin("slow", "anna")->record.id, id);
  EXPECT_TRUE(begin("new", "otto").ok());
  uploads_->Sweep();
  EXPECT_EQ(MustUpload("z", "z", "otto").version, 1);
  EXPECT_TRUE(absl::IsAborted(uploads_->Finish(other).status()));
  // Whoever opens the pipe lets the check go on, which refuses it.  Nothing is
  // written: it may have closed its end by then.
  { const std::ofstream writer(part); }
  check.join();
  // It is over: the owner's others go on.
  EXPECT_TRUE(absl::IsFailedPrecondition(uploads_->Finish(other).status()));
}

// A job that was looked at before a version went is not made after it.
TEST_F(UploadsTest, AJobIsMadeOfWhatIsThereOnly) {
  const UploadRecord record = MustUpload("x", "text");
  const std::string spec = "{\"dataset\":[\"" + uploads_->directory() + "/" +
                           record.id + "/a.jsonl\"]}";
  const auto submit = [&] {
    return store_
        ->Create(
            {.text = "t",
             .resolved = spec,
             .may_be_made =
                 [&](Database* db) { return uploads_->CheckThere(db, spec); }})
        .status();
  };
  ASSERT_TRUE(submit().ok());
  ASSERT_TRUE(store_->Transition("job-1", JobState::kFailed, {}).ok());
  // Also while its files are going.
  ASSERT_TRUE(ArmFileFaults("upload.remove:EIO:ever").ok());
  ASSERT_TRUE(uploads_->Remove(record.id).ok());
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_TRUE(absl::IsNotFound(submit())) << submit();
  Open();
  EXPECT_TRUE(absl::IsNotFound(submit()));
  EXPECT_TRUE(store_->Create({.text = "t", .resolved = "{}"}).ok());
}

// Nothing would tell of a hole in it.
TEST_F(UploadsTest, WithoutAHashItBeginsAgainAfterADeath) {
  const std::string text = RandomText(6 << 20, 6);
  const auto begun =
      uploads_->Create(Named("x", {{"a.jsonl", text.size(), ""}}), ReadsAll);
  ASSERT_TRUE(Send(begun->record.id, 0, text).ok());
  Open();
  EXPECT_EQ(uploads_->Get(begun->record.id)->received[0], 0u);
}

TEST_F(UploadsTest, WhatAStartCannotRemoveIsSaid) {
  const UploadRecord record = MustUpload("x", "text");
  ASSERT_TRUE(ArmFileFaults("upload.remove:EIO:ever").ok());
  ASSERT_TRUE(uploads_->Remove(record.id).ok());
  Open();
  ASSERT_EQ(uploads_->findings().size(), 1u);
  EXPECT_NE(uploads_->findings()[0].find("dataset:x"), std::string::npos);
  EXPECT_TRUE(uploads_->List().empty());
  ASSERT_TRUE(ArmFileFaults("").ok());
  Open();
  EXPECT_TRUE(uploads_->findings().empty());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "uploads/versions" / record.id));
}

TEST_F(UploadsTest, WhatIsGoneIsSentAgain) {
  const UploadRecord record = MustUpload("x", "text");
  std::filesystem::remove_all(dir_ / "uploads/versions" / record.id);
  const UploadRecord again = MustUpload("x", "text");
  EXPECT_EQ(again.version, 2);
  EXPECT_EQ(Read(again, "a.jsonl"), "text");
}

TEST_F(UploadsTest, WhatIsNotFinishedExpires) {
  const auto begun =
      uploads_->Create(Named("x", {FileOf("a", "ab")}), ReadsAll);
  ASSERT_TRUE(uploads_->PutChunk(begun->record.id, 0, 0, "a").ok());
  const UploadRecord finished = MustUpload("y", "text");
  clock_.Advance(kArrivingLifetime - absl::Hours(1));
  uploads_->Sweep();
  EXPECT_TRUE(uploads_->Get(begun->record.id).ok());
  clock_.Advance(absl::Hours(2));
  uploads_->Sweep();
  EXPECT_TRUE(absl::IsNotFound(uploads_->Get(begun->record.id).status()));
  EXPECT_FALSE(
      std::filesystem::exists(dir_ / "uploads/parts" / begun->record.id));
  EXPECT_EQ(uploads_->BytesOf("anna"), kMinFileBytes);
  EXPECT_TRUE(uploads_->Get(finished.id).ok());
}

TEST_F(UploadsTest, WhatLiesAboutIsSaidAndStays) {
  const UploadRecord record = MustUpload("x", "text");
  std::filesystem::create_directories(dir_ / "uploads/versions/foreign");
  std::filesystem::remove_all(dir_ / "uploads/versions" / record.id);
  Open();
  ASSERT_EQ(uploads_->findings().size(), 2u);
  EXPECT_NE(uploads_->findings()[0].find("dataset:x@1"), std::string::npos);
  EXPECT_NE(uploads_->findings()[1].find("versions/foreign"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "uploads/versions/foreign"));
}

TEST_F(UploadsTest, ARowThatIsDamagedIsNotGuessed) {
  MustUpload("x", "text");
  ASSERT_TRUE(store_
                  ->WriteWith([](Database* db) {
                    return db->Execute(
                        "DROP TRIGGER uploads_are_whole;"
                        "UPDATE uploads SET manifest = '- 4 a.jsonl' || "
                        "char(10) || '- 1 ../b'");
                  })
                  .ok());
  EXPECT_TRUE(absl::IsDataLoss(
      Uploads::Open({.state_dir = dir_}, store_.get(), clock_).status()));
}

TEST_F(UploadsTest, NamesAndProjectsAreChecked) {
  const auto code = [this](NewUpload upload) {
    return uploads_->Create(upload, ReadsAll).status();
  };
  EXPECT_EQ(ErrorField(code(Named("../x", {FileOf("a", "a")}))), "name");
  EXPECT_EQ(ErrorField(code(Named("x", {FileOf("../a", "a")}))), "files");
  EXPECT_EQ(ErrorField(code(Named("x", {}))), "files");
  EXPECT_EQ(
      ErrorField(code(Named("x", {{.name = "a", .bytes = 1, .sha256 = "zz"}}))),
      "files");
  NewUpload elsewhere = Named("x", {FileOf("a", "a")});
  elsewhere.project = "nowhere";
  EXPECT_TRUE(absl::IsNotFound(code(elsewhere)));
}

}  // namespace
}  // namespace roundhouse
