// Damage done to the files of a job store while nobody has them open: flipped
// bits, zeroed sectors, files cut short or gone.  Each is noticed when the
// store is opened, or its contents are what they were; and what was given out
// is never given again.
//
//   ROUNDHOUSE_COUNT  damages (default 300)
//   ROUNDHOUSE_SEED   of the first one (default 1); damage i has seed + i
// A seed says where a damage is; the uids of the jobs there are never the same.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "server/store/store.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using S = JobState;
using Files = std::map<std::string, std::string>;  // name -> content

// Nothing here needs a disk that keeps what it is given.
fs::path Scratch() {
  const fs::path memory = "/dev/shm";
  const fs::path root =
      fs::is_directory(memory) ? memory : fs::path(testing::TempDir());
  return root / absl::StrCat("rh_damage.", getpid());
}

Files ReadFiles(const fs::path& dir) {
  Files files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    files[entry.path().filename().string()] = content.str();
  }
  return files;
}

void WriteFiles(const fs::path& dir, const Files& files) {
  fs::remove_all(dir);
  fs::create_directories(dir);
  for (const auto& [name, content] : files) {
    std::ofstream(dir / name, std::ios::binary) << content;
  }
}

// Every value of every table.
std::string Dump(const fs::path& path) {
  auto db = Database::Open(path, Database::Mode::kRead);
  EXPECT_TRUE(db.ok()) << db.status();
  const std::pair<const char*, int> tables[] = {
      {"jobs ORDER BY number", 22},
      {"attempts ORDER BY job, attempt", 6},
      {"events ORDER BY revision", 9},
      {"requests ORDER BY principal, request_id", 6},
      {"checkpoints ORDER BY job, step", 6},
      {"meta ORDER BY key", 3},
      {"sqlite_sequence ORDER BY name", 2}};
  std::string text;
  for (const auto& [table, columns] : tables) {
    auto select = (*db)->Prepare(absl::StrCat("SELECT * FROM ", table));
    EXPECT_TRUE(select.ok()) << select.status();
    while (true) {
      const auto row = select->Step();
      EXPECT_TRUE(row.ok()) << row.status();
      if (!row.ok() || !*row) break;
      for (int i = 0; i < columns; ++i) {
        absl::StrAppend(&text, select->Text(i), "|");
      }
      text += "\n";
    }
  }
  return text;
}

// A store's files at some moment, and what it had acknowledged by then.
struct Image {
  Files files;
  std::string contents;
  int64_t last_job = 0;
  int64_t revision = 0;
};

void Work(JobStore* store, std::mt19937_64* rng, int jobs) {
  for (int i = 0; i < jobs; ++i) {
    const auto job = store->Create(
        {.text = std::string((*rng)() % 6000, 't'),
         .resolved = std::string((*rng)() % 3000, 'r'),
         .output_name = i % 3 == 0 ? absl::StrCat("o", (*rng)()) : "",
         .request_id = absl::StrCat("r", (*rng)())});
    ASSERT_TRUE(job.ok()) << job.status();
    const S path[] = {S::kQueued, S::kLoading, S::kRunning, S::kFinalizing,
                      S::kSucceeded};
    const size_t moves = (*rng)() % 6;
    for (size_t m = 0; m < moves; ++m) {
      if (path[m] == S::kFinalizing) {
        ASSERT_TRUE(
            store->AddCheckpoint(job->id, {.step = 5, .path = "/c-5"}).ok());
      }
      ASSERT_TRUE(store->Transition(job->id, path[m], {}).ok());
    }
  }
}

class DamageTest : public testing::Test {
 protected:
  void SetUp() override { WriteFiles(dir_, {}); }
  void TearDown() override { fs::remove_all(dir_); }

  std::string path() const { return dir_ / "jobs.db"; }

  // `jobs` more of them, then a kill or, with `stopped`, a clean stop.
  Image MakeImage(int jobs, bool stopped) {
    std::mt19937_64 rng(jobs);
    WriteFiles(dir_, {});
    auto store = JobStore::Open({.path = path()});
    EXPECT_TRUE(store.ok()) << store.status();
    Work(store->get(), &rng, jobs);
    Image image;
    image.contents = Dump(path());
    image.last_job = jobs;
    image.revision = *(*store)->Revision();
    if (stopped) store->reset();
    image.files = ReadFiles(dir_);
    image.files.erase("jobs.db.backup");
    return image;
  }

  fs::path dir_ = Scratch();
};

// One damage to one file; answers what it was.
std::string Damage(Files* files, std::mt19937_64* rng) {
  auto file = files->begin();
  std::advance(file, (*rng)() % files->size());
  std::string& content = file->second;
  const std::string name = file->first;
  const size_t at = content.empty() ? 0 : (*rng)() % content.size();
  const uint64_t kind = (*rng)() % 10;
  if (kind == 0) {
    files->erase(file);
    return name + " is gone";
  }
  if (kind == 1) {
    content.resize(at);
    return absl::StrCat(name, " ends at ", at);
  }
  if (kind == 2) {
    const size_t begin = at / 512 * 512;
    content.replace(begin, 512, std::min<size_t>(512, content.size() - begin),
                    '\0');
    return absl::StrCat(name, " is zero at ", begin);
  }
  if (!content.empty()) content[at] ^= static_cast<char>(1 << (*rng)() % 8);
  return absl::StrCat(name, " bit flipped at ", at);
}

TEST_F(DamageTest, IsNoticedOrChangesNothing) {
  const int64_t count = NumberFromEnvironment("ROUNDHOUSE_COUNT", 300);
  const int64_t seed = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  std::vector<Image> images;
  for (const int jobs : {1, 3, 9, 30}) {
    for (const bool stopped : {false, true}) {
      images.push_back(MakeImage(jobs, stopped));
    }
  }
  std::map<std::string, int> outcomes;
  for (int64_t i = 0; i < count; ++i) {
    std::mt19937_64 rng(seed + i);
    const Image& image = images[rng() % images.size()];
    Files files = image.files;
    const std::string what =
        absl::StrCat("seed ", seed + i, ": ", Damage(&files, &rng));
    SCOPED_TRACE(what);
    WriteFiles(dir_, files);
    auto store = JobStore::Open({.path = path()});
    if (!store.ok()) {
      ++outcomes["refused"];
      EXPECT_TRUE(absl::StrContains(std::string(store.status().message()),
                                    "job store: "))
          << store.status();
      continue;
    }
    const bool said = !(*store)->findings().empty();
    const bool equal = Dump(path()) == image.contents;
    ++outcomes[said ? equal ? "said, equal" : "said, lost" : "equal"];
    EXPECT_TRUE(said || equal) << "in silence";
    const auto job = (*store)->Create({.text = "t", .resolved = "{}"});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_GT(*JobNumber(job->id), image.last_job) << "given twice";
    EXPECT_GT(*(*store)->Revision(), image.revision) << "given twice";
  }
  for (const auto& [outcome, times] : outcomes) {
    std::cout << "damage: " << outcome << ": " << times << " of " << count
              << "\n";
  }
  EXPECT_GT(outcomes["refused"], 0);
  EXPECT_GT(outcomes["said, lost"], 0);
}

}  // namespace
}  // namespace roundhouse
