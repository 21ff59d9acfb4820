#include "server/job/job_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/testing/full_disk.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest() : directory_(testing::TempDir() + "/job_files_test/uid") {
    std::filesystem::remove_all(directory_);
  }
  ~JobFilesTest() override { std::filesystem::remove_all(directory_); }

  std::string Log() const { return ReadTestFile(directory_ + "/log"); }
  std::string Metrics() const {
    return ReadTestFile(directory_ + "/metrics.jsonl");
  }

  const std::string directory_;
};

void Ignore(const nlohmann::json&) {}

TEST_F(JobFilesTest, AppendsToWhatAnEarlierDaemonWrote) {
  for (const char* text : {"one", "two\nlines"}) {
    auto files = JobFiles::Open(directory_);
    ASSERT_TRUE(files.ok()) << files.status();
    (*files)->Log(text);
    (*files)->Metric(R"({"step":1})");
  }
  const std::string log = Log();
  EXPECT_NE(log.find("Z one\n"), std::string::npos) << log;
  EXPECT_NE(log.find("Z two\\nlines\n"), std::string::npos) << log;
  EXPECT_EQ(Metrics(), "{\"step\":1}\n{\"step\":1}\n");
}

// A member names a dataset so that `logs` would clear the screen, turn the
// writing round and show a line that the daemon never wrote.
TEST_F(JobFilesTest, ANameCannotForgeALineOrMoveTheCursor) {
  auto files = *JobFiles::Open(directory_);
  files->Log(
      "WARNING: /data/\xc3\xa4\x1b[2J\xe2\x80\xae\r\n"
      "2026-01-01T00:00:00Z SUCCEEDED: 1 row is empty");
  const std::string log = Log();
  EXPECT_NE(log.find("Z WARNING: /data/\xc3\xa4\\x1b[2J\\u202e\\x0d\\n"
                     "2026-01-01T00:00:00Z SUCCEEDED: 1 row is empty\n"),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find('\n'), log.size() - 1) << log;
}

TEST_F(JobFilesTest, StepsThatWillBeDoneAgainAreDropped) {
  auto files = *JobFiles::Open(directory_);
  for (int step = 0; step <= 4; ++step) {
    files->Metric("{\"step\":" + std::to_string(step) + "}");
  }
  std::vector<int> shown;
  const auto show = [&shown](const nlohmann::json& line) {
    shown.push_back(line["step"]);
  };
  ASSERT_TRUE(files->KeepMetricsUpTo(2, -1, show).ok());
  EXPECT_EQ(shown, std::vector<int>({0, 1, 2}));
  files->Metric(R"({"step":3,"again":true})");
  EXPECT_EQ(Metrics(),
            "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n"
            "{\"step\":3,\"again\":true}\n");
  ASSERT_TRUE(files->KeepMetricsUpTo(-1, -1, Ignore).ok());
  EXPECT_EQ(Metrics(), "");
}

TEST_F(JobFilesTest, EvaluationsThatWillBeDoneAgainAreDropped) {
  auto files = *JobFiles::Open(directory_);
  for (const char* metric : {R"({"eval_loss":2,"step":0})", R"({"step":1})",
                             R"({"eval_loss":1,"step":1})"}) {
    files->Metric(metric);
  }
  const std::string all = Metrics();
  ASSERT_TRUE(files->KeepMetricsUpTo(1, 1, Ignore).ok());
  EXPECT_EQ(Metrics(), all);
  ASSERT_TRUE(files->KeepMetricsUpTo(1, 0, Ignore).ok());
  EXPECT_EQ(Metrics(), "{\"eval_loss\":2,\"step\":0}\n{\"step\":1}\n");
  ASSERT_TRUE(files->KeepMetricsUpTo(0, -1, Ignore).ok());
  EXPECT_EQ(Metrics(), "");
}

// A daemon that died while it wrote leaves half a line.
TEST_F(JobFilesTest, LinesThatAreNoneAreDropped) {
  std::filesystem::create_directories(directory_);
  WriteTestFile(directory_ + "/metrics.jsonl",
                "{\"step\":1}\n[]\nnull\n{}\n{\"step\":\"1\"}\n"
                "{\"step\":null}\n{\"step\":1.5}\n\n{\"step\":2}\n{\"ste");
  auto files = *JobFiles::Open(directory_);
  ASSERT_TRUE(files->KeepMetricsUpTo(9, 9, Ignore).ok());
  EXPECT_EQ(Metrics(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(JobFilesTest, SamplesAreSetAndAdded) {
  const std::string path = directory_ + "/samples.jsonl";
  auto files = *JobFiles::Open(directory_);
  ASSERT_TRUE(files->SetSamples({}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  files->AddSamples({"{1}", "{2}"});
  files->AddSamples({"{3}"});
  EXPECT_EQ(ReadTestFile(path), "{1}\n{2}\n{3}\n");
  // Another life of the job, which goes on from before the last one.
  ASSERT_TRUE(files->SetSamples({"{1}", "{2}"}).ok());
  files->AddSamples({"{4}"});
  EXPECT_EQ(ReadTestFile(path), "{1}\n{2}\n{4}\n");
  ASSERT_TRUE(files->SetSamples({}).ok());
  EXPECT_EQ(ReadTestFile(path), "");
}

TEST_F(JobFilesTest, WhatAFullDiskDoesNotTakeIsWrittenLater) {
  auto files = *JobFiles::Open(directory_);
  {
    const FullDisk full(20);  // in the middle of the second line
    for (int step = 1; step <= 3; ++step) {
      files->Metric("{\"step\":" + std::to_string(step) + "}");
      files->AddSamples({"{\"sample\":" + std::to_string(step) + "}"});
    }
    EXPECT_EQ(Metrics(), "{\"step\":1}\n{\"step\":2");
  }
  files->Metric(R"({"step":4})");
  EXPECT_EQ(Metrics(),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  files.reset();  // nothing more to write, but what was kept
  EXPECT_EQ(ReadTestFile(directory_ + "/samples.jsonl"),
            "{\"sample\":1}\n{\"sample\":2}\n{\"sample\":3}\n");
}

TEST_F(JobFilesTest, WhatIsKeptIsBoundedAndWhole) {
  auto files = *JobFiles::Open(directory_);
  const std::string line(kMaxUnwrittenBytes / 4, '1');
  {
    const FullDisk full(10);
    for (int i = 0; i < 9; ++i) files->Metric(line);
  }
  files.reset();
  const std::string written = Metrics();
  EXPECT_LE(written.size(), 10 + kMaxUnwrittenBytes);
  EXPECT_EQ(written.size() % (line.size() + 1), 0);
}

TEST_F(JobFilesTest, ADirectoryThatCannotBeMadeIsNamed) {
  std::filesystem::create_directories(directory_);
  WriteTestFile(directory_ + "/file", "");
  const auto files = JobFiles::Open(directory_ + "/file/below");
  EXPECT_FALSE(files.ok());
  EXPECT_NE(std::string(files.status().message()).find("/file/below"),
            std::string::npos);
  std::filesystem::create_directories(directory_ + "/other/log");
  EXPECT_FALSE(JobFiles::Open(directory_ + "/other").ok());
}

}  // namespace
}  // namespace roundhouse
