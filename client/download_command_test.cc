// roundhouse download from a server of the test's that breaks where it is told.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/crc32c.h"
#include "base/files/durable_file.h"
#include "base/mutex.h"
#include "client/testing/client_fixture.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

class DownloadCommandTest : public ClientTest {
 protected:
  DownloadCommandTest() {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::current_path(folder_);
    std::string big((5 << 20) + 3, '\0');
    for (size_t i = 0; i < big.size(); ++i) {
      big[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    files_ = {{"adapter_config.json", "{}"},
              {"adapter_model.safetensors", big},
              {"sub/empty", ""}};
    FakeAnswers& answers = server_.answers();
    answers.output_files = [this](const std::string& source, auto* response) {
      return List(source, response);
    };
    answers.read_output = [this](const auto& request, auto* response) {
      return Read(request, response);
    };
    answers.hash_output = [this](const auto& request, auto* response) {
      // In two calls.
      response->set_hashed_bytes(1);
      MutexLock lock(mutex_);
      if (++hashes_ % 2 == 0) {
        response->set_sha256(Sha256Of(files_[request.name()]));
      }
      return grpc::Status::OK;
    };
  }

  grpc::Status List(const std::string& source,
                    v1::ListOutputFilesResponse* response) {
    MutexLock lock(mutex_);
    source_ = source;
    for (const auto& [name, text] : files_) {
      v1::OutputFile* const file = response->add_files();
      file->set_name(name);
      file->set_size_bytes(static_cast<int64_t>(text.size()));
      file->set_state(state_);
    }
    return grpc::Status::OK;
  }

  grpc::Status Read(const v1::ReadOutputFileRequest& request,
                    v1::ReadOutputFileResponse* response) {
    MutexLock lock(mutex_);
    EXPECT_EQ(request.state(), state_);
    ++reads_;
    if (break_after_ > 0 && reads_ % break_after_ == 0) {
      return {grpc::StatusCode::UNAVAILABLE, "the server went away"};
    }
    std::string data = files_[request.name()].substr(
        static_cast<size_t>(request.offset()), 1 << 20);
    response->set_crc32c(Crc32c(data));
    if (reads_ == damage_at_) data[0] ^= 1;  // on its way
    if (reads_ == lie_at_) {                 // before it
      data[0] ^= 1;
      response->set_crc32c(Crc32c(data));
    }
    response->set_data(data);
    return grpc::Status::OK;
  }

  void ExpectAllIn(const std::string& directory) {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (entry.is_regular_file()) ++count;
    }
    EXPECT_EQ(count, files_.size());
    for (const auto& [name, text] : files_) {
      std::ifstream file(fs::path(directory) / name);
      std::stringstream found;
      found << file.rdbuf();
      EXPECT_EQ(found.str(), text) << name;
    }
    EXPECT_FALSE(fs::exists(directory + ".part"));
  }

  fs::path folder_;
  Mutex mutex_;
  std::map<std::string, std::string> files_;
  std::string source_;
  std::string state_ = "1-2-3";
  int reads_ = 0;
  int hashes_ = 0;
  int break_after_ = 0;
  int damage_at_ = 0;
  int lie_at_ = 0;
};

TEST_F(DownloadCommandTest, AllFilesComeOver) {
  ASSERT_EQ(Run({"download", "projects/default/fineTuningJobs/job-7"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(out(), "job-7\n");
  EXPECT_EQ(source_, "projects/default/fineTuningJobs/job-7");
  ExpectAllIn("job-7");
  // What is there stays.
  EXPECT_EQ(Run({"download", "job-7"}), ExitCode::kError);
  EXPECT_NE(err().find("--force"), std::string::npos) << err();
  std::ofstream("job-7/more") << "x";
  ASSERT_EQ(Run({"download", "job-7", "--force"}), ExitCode::kOk) << err();
  ExpectAllIn("job-7");
  ASSERT_EQ(Run({"download", "job-7", "--output=else/where/"}), ExitCode::kOk)
      << err();
  ExpectAllIn("else/where");
}

TEST_F(DownloadCommandTest, ItGoesOnWhereItStopped) {
  break_after_ = 3;
  ASSERT_EQ(Run({"download", "job-7"}), ExitCode::kOk) << err();
  ExpectAllIn("job-7");
}

// The command is given again after it was killed.
TEST_F(DownloadCommandTest, AnotherProcessGoesOn) {
  break_after_ = 1;
  files_.erase("adapter_config.json");
  fs::create_directories("job-7.part");
  EXPECT_EQ(Run({"download", "job-7"}), ExitCode::kUnavailable);
  ASSERT_TRUE(fs::exists("job-7.part/.roundhouse"));
  const std::string& big = files_["adapter_model.safetensors"];
  std::ofstream("job-7.part/adapter_model.safetensors") << big;
  break_after_ = 0;
  reads_ = 0;
  ASSERT_EQ(Run({"download", "job-7"}), ExitCode::kOk) << err();
  EXPECT_EQ(reads_, 4);  // the last 4 MiB, from an odd place
  ExpectAllIn("job-7");
}

TEST_F(DownloadCommandTest, PartsOfAnotherResultAreNotMixed) {
  break_after_ = 1;
  EXPECT_EQ(Run({"download", "job-7"}), ExitCode::kUnavailable);
  std::ofstream("job-7.part/adapter_model.safetensors")
      << std::string(5 << 20, 'x');
  break_after_ = 0;
  state_ = "4-5-6";
  ASSERT_EQ(Run({"download", "job-7"}), ExitCode::kOk) << err();
  ExpectAllIn("job-7");
}

TEST_F(DownloadCommandTest, DamageIsNoticed) {
  damage_at_ = 3;
  ASSERT_EQ(Run({"download", "job-7"}), ExitCode::kOk) << err();
  ExpectAllIn("job-7");
  fs::remove_all("job-7");
  damage_at_ = 0;
  lie_at_ = reads_ + 4;
  ASSERT_EQ(Run({"download", "job-7"}), ExitCode::kOk) << err();
  ExpectAllIn("job-7");
}

TEST_F(DownloadCommandTest, AServersNamesStayInTheDirectory) {
  for (const char* name : {"../x", "/tmp/x", "a/../../x", ".roundhouse"}) {
    files_ = {{name, "x"}};
    EXPECT_EQ(Run({"download", "job-7"}), ExitCode::kError) << name;
    EXPECT_FALSE(fs::exists("job-7"));
  }
  EXPECT_FALSE(fs::exists("x"));
}

TEST_F(DownloadCommandTest, MergedIsExportedFirst) {
  std::vector<v1::ExportCheckpointRequest> asked;
  grpc::Status answer = grpc::Status::OK;
  server_.answers().export_checkpoint = [&](const auto& request, const auto&) {
    asked.push_back(request);
    return answer;
  };
  ASSERT_EQ(Run({"download", "job-7/checkpoint-4", "--merged"}), ExitCode::kOk)
      << err();
  EXPECT_EQ(asked[0].source(), "job-7/checkpoint-4");
  EXPECT_EQ(asked[0].kind(), v1::EXPORT_KIND_MERGED);
  EXPECT_EQ(asked[0].output(), source_);
  EXPECT_EQ(out(), "job-7-checkpoint-4-merged\n");
  EXPECT_EQ(source_, "job-7-checkpoint-4-merged");
  // It was merged before.
  answer = grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "is there already");
  EXPECT_EQ(Run({"download", "job-8", "--merged"}), ExitCode::kOk) << err();
  EXPECT_NE(err().find("job-8-merged is among the server's outputs already"),
            std::string::npos)
      << err();
  answer = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no output");
  EXPECT_EQ(Run({"download", "job-9", "--merged"}), ExitCode::kPrecondition);
}

}  // namespace
}  // namespace roundhouse::client
