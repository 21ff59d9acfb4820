// roundhouse upload against a server of the test's that loses what it is told
// to lose.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/mutex.h"
#include "base/upload_names.h"
#include "client/testing/client_fixture.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

class UploadCommandTest : public ClientTest {
 protected:
  UploadCommandTest() {
    FakeAnswers& answers = server_.answers();
    answers.create_upload = [this](const auto& request, v1::Upload* upload) {
      return Create(request, upload);
    };
    answers.chunk = [this](const auto& request, auto* response) {
      return Chunk(request, response);
    };
    answers.finish_upload = [this](const std::string& id, v1::Upload* upload) {
      return Finish(upload);
    };
  }

  grpc::Status Create(const v1::CreateUploadRequest& request,
                      v1::Upload* upload) {
    MutexLock lock(mutex_);
    ++creates_;
    request_ = request;
    files_.resize(static_cast<size_t>(request.files_size()));
    Fill(upload);
    return grpc::Status::OK;
  }

  grpc::Status Chunk(const v1::UploadChunkRequest& request,
                     v1::UploadChunkResponse* response) {
    MutexLock lock(mutex_);
    ++chunks_;
    EXPECT_EQ(request.crc32c(), Crc32c(request.data()));
    if (break_after_ > 0 && chunks_ % break_after_ == 0) {
      return {grpc::StatusCode::UNAVAILABLE, "the server went away"};
    }
    std::string& file = files_[static_cast<size_t>(request.file())];
    const auto offset = static_cast<size_t>(request.offset());
    EXPECT_LE(offset + request.data().size(), file.size() + kUploadAheadBytes);
    // Only in order: what comes ahead is forgotten.
    if (offset == file.size()) file += request.data();
    response->set_received_bytes(static_cast<int64_t>(file.size()));
    return grpc::Status::OK;
  }

  grpc::Status Finish(v1::Upload* upload) {
    MutexLock lock(mutex_);
    if (busy_ > 0) {
      --busy_;
      return {grpc::StatusCode::ABORTED, "another upload is being checked"};
    }
    if (finishes_++ < spoiled_) {
      files_[0].clear();
      return {grpc::StatusCode::FAILED_PRECONDITION,
              "a.jsonl: upload it again"};
    }
    Fill(upload);
    upload->set_state(v1::UPLOAD_STATE_FINISHED);
    upload->set_version(1);
    return grpc::Status::OK;
  }

  std::string MakeFile(const std::string& name, size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      text[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    const std::string path = WriteFile(name, text);
    expected_ = text;
    return path;
  }

  Mutex mutex_;
  v1::CreateUploadRequest request_;
  std::vector<std::string> files_;
  std::string expected_;
  int creates_ = 0;
  int chunks_ = 0;
  int finishes_ = 0;
  int break_after_ = 0;  // each so many chunks fail
  int spoiled_ = 0;      // so many finishes lose the first file
  int busy_ = 0;         // so many finishes find another one checked

 private:
  void Fill(v1::Upload* upload) {
    upload->set_id("1234");
    upload->set_kind(request_.kind());
    upload->set_name(request_.name());
    upload->set_project("default");
    upload->set_state(v1::UPLOAD_STATE_ARRIVING);
    for (const std::string& file : files_) {
      upload->add_received_bytes(static_cast<int64_t>(file.size()));
    }
  }
};

TEST_F(UploadCommandTest, AFileArrivesAndIsNamed) {
  const std::string path = MakeFile("dates.jsonl", (3 << 20) + 7);
  ASSERT_EQ(Run({"upload", path, "--project=vision"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(), "dataset:dates\n");
  EXPECT_EQ(request_.kind(), v1::UPLOAD_KIND_DATASET);
  EXPECT_EQ(request_.project(), "vision");
  EXPECT_EQ(request_.files(0).name(), "dates.jsonl");
  EXPECT_EQ(request_.files(0).sha256().size(), 64u);
}

TEST_F(UploadCommandTest, AModelIsADirectory) {
  const std::filesystem::path folder = testing::TempDir() + "/tiny model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << "{}";
  std::ofstream(folder / "empty") << "";
  std::ofstream(folder / ".hidden") << "x";
  ASSERT_EQ(Run({"upload", folder.string() + "/", "--model"}), ExitCode::kOk)
      << err();
  EXPECT_EQ(out(), "model:tiny-model\n");
  EXPECT_EQ(files_[0], "{}");
  EXPECT_NE(err().find(".hidden"), std::string::npos) << err();
  EXPECT_EQ(Run({"upload", (folder / "config.json").string(), "--model"}),
            ExitCode::kError);
  EXPECT_EQ(Run({"upload", folder.string(), "--name", "a/b"}),
            ExitCode::kUsage);
  EXPECT_EQ(Run({"upload", (folder / "none").string()}), ExitCode::kNotFound);
}

// Whatever breaks, each try begins where the server is.
TEST_F(UploadCommandTest, ItGoesOnWhereItStopped) {
  break_after_ = 3;
  const std::string path = MakeFile("a.jsonl", (9 << 20) + 11);
  ASSERT_EQ(Run({"upload", path}), ExitCode::kOk) << err();
  EXPECT_EQ(files_[0], expected_);
  EXPECT_GT(creates_, 2);
}

TEST_F(UploadCommandTest, ItGivesUpWhereNothingMoves) {
  break_after_ = 1;
  const std::string path = MakeFile("a.jsonl", 100);
  EXPECT_EQ(Run({"upload", path}), ExitCode::kUnavailable);
  EXPECT_EQ(creates_, 4);
  EXPECT_EQ(out(), "");
}

// However long the user's other upload takes.
TEST_F(UploadCommandTest, ItWaitsForTheCheckOfAnother) {
  busy_ = 20;
  const std::string path = MakeFile("a.jsonl", 100);
  ASSERT_EQ(Run({"upload", path}), ExitCode::kOk) << err();
  EXPECT_EQ(busy_, 0);
  EXPECT_EQ(creates_, 1);
}

TEST_F(UploadCommandTest, AFileThatWasSpoiltComesAgain) {
  spoiled_ = 1;
  const std::string path = MakeFile("a.jsonl", 1000);
  ASSERT_EQ(Run({"upload", path}), ExitCode::kOk) << err();
  EXPECT_EQ(files_[0], expected_);
  finishes_ = 0;
  spoiled_ = 100;
  EXPECT_EQ(Run({"upload", path}), ExitCode::kPrecondition);
}

TEST_F(UploadCommandTest, WhatIsThereIsNotSent) {
  server_.answers().create_upload = [](const auto& request,
                                       v1::Upload* upload) {
    upload->set_kind(request.kind());
    upload->set_name(request.name());
    upload->set_state(v1::UPLOAD_STATE_FINISHED);
    return grpc::Status::OK;
  };
  const std::string path = MakeFile("a.jsonl", 1000);
  ASSERT_EQ(Run({"upload", path, "--name=x"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(), "dataset:x\n");
  EXPECT_EQ(chunks_, 0);
}

TEST_F(UploadCommandTest, AFileThatChangesIsRefused) {
  const std::string path = MakeFile("a.jsonl", 5 << 20);
  server_.answers().create_upload = [&](const auto& request,
                                        v1::Upload* upload) {
    std::ofstream(path, std::ios::app) << "more";
    return Create(request, upload);
  };
  EXPECT_EQ(Run({"upload", path}), ExitCode::kPrecondition);
  EXPECT_NE(err().find("has changed"), std::string::npos) << err();
}

// The fields and paths that the job file of these tests has.
class SubmitUploadTest : public UploadCommandTest {
 protected:
  SubmitUploadTest() {
    path_ = MakeFile("mine.jsonl", 100);
    file_ = WriteFile("job.yaml", "dataset: " + path_ + ",not-here.jsonl\n");
    server_.answers().paths = [this](const auto&, auto* response) {
      for (const auto& [field, path] :
           {std::pair("dataset", path_),
            std::pair("dataset", std::string("not-here.jsonl")),
            std::pair("validation_dataset", path_)}) {
        v1::JobFilePath* const added = response->add_paths();
        added->set_field(field);
        added->set_path(path);
      }
      return grpc::Status::OK;
    };
    server_.answers().create = [this](const auto& request, auto* job) {
      submitted_ = request;
      job->set_name("projects/default/fineTuningJobs/job-1");
      return answer_;
    };
  }

  std::string path_, file_;
  v1::CreateFineTuningJobRequest submitted_;
  grpc::Status answer_;
};

TEST_F(SubmitUploadTest, WhatIsHereIsUploadedOnce) {
  ASSERT_EQ(Run({"submit", "-f", file_, "--upload"}), ExitCode::kOk) << err();
  EXPECT_EQ(creates_, 1);
  EXPECT_EQ(files_[0], expected_);
  ASSERT_EQ(submitted_.uploaded_size(), 1);
  const std::string name = submitted_.uploaded().at(path_);
  EXPECT_EQ(name.rfind("dataset:default/mine-", 0), 0u) << name;
  EXPECT_EQ(name.substr(name.size() - 2), "@1");
  EXPECT_EQ(out(), "job-1\n");
  // Other contents have another name.
  MakeFile("mine.jsonl", 101);
  files_.clear();
  ASSERT_EQ(Run({"submit", "-f", file_, "--upload"}), ExitCode::kOk) << err();
  EXPECT_NE(submitted_.uploaded().at(path_), name);
}

// Whatever the server answers, only what the job file names is read.
TEST_F(SubmitUploadTest, APathThatTheJobFileDoesNotNameStaysHere) {
  EXPECT_EQ(Run({"submit", "-f", file_, "--upload"}), ExitCode::kOk) << err();
  EXPECT_NE(err().find("dataset: sending " + path_ + " (1 file, 100 bytes)"),
            std::string::npos)
      << err();
  creates_ = 0;
  const std::string folder = std::filesystem::path(path_).parent_path();
  for (const std::string& text :
       {std::string("dataset: other.jsonl\n"), "dataset: " + path_ + ".gz\n",
        "dataset: /x" + path_ + "\n", "{\"" + path_ + "\": \"dataset\"}\n",
        // Nor a folder above what it names.
        "dataset: " + folder + "/mine.jsonl/x\n"}) {
    file_ = WriteFile("job.yaml", text);
    EXPECT_EQ(Run({"submit", "-f", file_, "--upload"}), ExitCode::kPrecondition)
        << text << err();
    EXPECT_NE(err().find("does not stand so in the job file"),
              std::string::npos)
        << err();
  }
  EXPECT_EQ(creates_, 0);
  file_ = WriteFile("job.json", "{\"dataset\":[\"" + path_ + "\"]}\n");
  EXPECT_EQ(Run({"submit", "-f", file_, "--upload"}), ExitCode::kOk) << err();
}

TEST_F(SubmitUploadTest, ARefusedPathThatIsHereSuggestsIt) {
  answer_ = {grpc::StatusCode::INVALID_ARGUMENT,
             "dataset: \"" + path_ + "\" is outside the data roots"};
  EXPECT_EQ(Run({"submit", "-f", file_}), ExitCode::kError);
  EXPECT_EQ(submitted_.uploaded_size(), 0);
  EXPECT_NE(err().find("submit --upload sends it"), std::string::npos) << err();
  answer_ = {grpc::StatusCode::INVALID_ARGUMENT, "seed: is negative"};
  EXPECT_EQ(Run({"submit", "-f", file_}), ExitCode::kError);
  EXPECT_EQ(err().find("--upload"), std::string::npos) << err();
}

class DatasetUploadsTest : public ClientTest {
 protected:
  DatasetUploadsTest() {
    server_.answers().uploads = [this](const v1::ListUploadsRequest& request,
                                       v1::ListUploadsResponse* response) {
      asked_ = request;
      for (const v1::Upload& upload : all_) {
        if (request.name().empty() || request.name() == upload.name()) {
          *response->add_uploads() = upload;
        }
      }
      return grpc::Status::OK;
    };
    server_.answers().delete_upload = [this](const std::string& id) {
      deleted_.push_back(id);
      return grpc::Status::OK;
    };
    Add("1", "dates", 1, "default");
    Add("2", "dates", 2, "default");
    Add("3", "names", 0, "default");
  }
  void Add(const std::string& id, const std::string& name, int64_t version,
           const std::string& project) {
    v1::Upload& upload = all_.emplace_back();
    upload.set_id(id);
    upload.set_kind(v1::UPLOAD_KIND_DATASET);
    upload.set_name(name);
    upload.set_version(version);
    upload.set_project(project);
    upload.set_owner("anna");
    upload.set_file_count(1);
    upload.set_size_bytes(2048);
    upload.mutable_create_time()->set_seconds(1'700'000'000);
  }

  std::vector<v1::Upload> all_;
  v1::ListUploadsRequest asked_;
  std::vector<std::string> deleted_;
};

TEST_F(DatasetUploadsTest, ListShowsEachVersion) {
  ASSERT_EQ(Run({"dataset", "list"}), ExitCode::kOk) << err();
  EXPECT_EQ(out(),
            "NAME           VERSION     FILES  SIZE     PROJECT  OWNER  SINCE\n"
            "dataset:dates  1           1      2.0 KiB  default  anna   "
            "2023-11-14 22:13\n"
            "dataset:dates  2           1      2.0 KiB  default  anna   "
            "2023-11-14 22:13\n"
            "dataset:names  unfinished  1      2.0 KiB  default  anna   "
            "2023-11-14 22:13\n");
  EXPECT_EQ(asked_.kind(), v1::UPLOAD_KIND_DATASET);
  ASSERT_EQ(Run({"dataset", "list", "--project=vision", "-o", "name"}),
            ExitCode::kOk);
  EXPECT_EQ(asked_.project(), "vision");
  EXPECT_NE(out().find("dataset:default/dates@2\n"), std::string::npos);
}

TEST_F(DatasetUploadsTest, DeleteTakesAVersionOrAll) {
  ASSERT_EQ(Run({"dataset", "delete", "dates@2"}), ExitCode::kOk) << err();
  EXPECT_EQ(deleted_, std::vector<std::string>{"2"});
  ASSERT_EQ(Run({"dataset", "delete", "dates"}), ExitCode::kOk) << err();
  EXPECT_EQ(deleted_, (std::vector<std::string>{"2", "1", "2"}));
  EXPECT_EQ(Run({"dataset", "delete", "dates@3"}), ExitCode::kNotFound);
  Add("4", "dates", 1, "vision");
  EXPECT_EQ(Run({"dataset", "delete", "dates"}), ExitCode::kError);
  EXPECT_NE(err().find("default, vision have it"), std::string::npos) << err();
  EXPECT_EQ(deleted_.size(), 3u);
}

TEST_F(DatasetUploadsTest, ShowIsOfTheNewest) {
  server_.answers().upload = [this](const std::string& id, v1::Upload* upload) {
    *upload = all_[id == "2" ? 1 : 0];
    upload->add_files()->set_name("a\x1b.jsonl");
    return grpc::Status::OK;
  };
  ASSERT_EQ(Run({"dataset", "show", "dates"}), ExitCode::kOk) << err();
  EXPECT_NE(out().find("version: 2\n"), std::string::npos) << out();
  EXPECT_EQ(out().find('\x1b'), std::string::npos);
}

TEST_F(DatasetUploadsTest, WhatIsNotUnderstoodIsUsage) {
  EXPECT_EQ(Run({"dataset", "list", "x"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "show"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "delete", "a", "b"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "list", "--model=m"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "validate", "--model=m"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "validate", "a"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"dataset", "delte", "a"}), ExitCode::kUsage);
  EXPECT_NE(err().find("did you mean delete?"), std::string::npos) << err();
}

}  // namespace
}  // namespace roundhouse::client
