#include "base/files/durable_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "base/files/file_fault.h"
#include "base/files/sealed_json.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class DurableFileTest : public testing::Test {
 protected:
  DurableFileTest() : root_(testing::TempDir() + "/durable_file_test") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~DurableFileTest() override {
    EXPECT_TRUE(ArmFileFaults("").ok());
    fs::remove_all(root_);
  }

  static std::string Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    stat(path.c_str(), &info);
    return info.st_mode & 0777;
  }

  const std::string root_;
};

TEST_F(DurableFileTest, AFileIsReplacedAsAWholeAndNotOpenToOthers) {
  const std::string path = root_ + "/text";
  umask(0);
  ASSERT_TRUE(WriteFileDurably(kJobMetrics, path, "a longer text").ok());
  ASSERT_TRUE(WriteFileDurably(kJobMetrics, path, "short").ok());
  EXPECT_EQ(Text(path), "short");
  EXPECT_FALSE(fs::exists(TempName(path)));
  EXPECT_EQ(ModeOf(path), 0640u);
  ASSERT_TRUE(MakeFolderDurably(kJobMetrics, root_ + "/a/b/c").ok());
  EXPECT_EQ(ModeOf(root_ + "/a/b/c"), 0750u);
  EXPECT_TRUE(MakeFolderDurably(kJobMetrics, root_ + "/a/b/c").ok());
  umask(0022);
}

TEST_F(DurableFileTest, ErrorsNameThePath) {
  for (const std::string& path :
       {root_ + "/none/x", std::string("/dev/full/x")}) {
    const absl::Status status = WriteFileDurably(kJobMetrics, path, "y");
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::StrContains(std::string(status.message()), path))
        << status;
  }
  const std::string path = root_ + "/text";
  ASSERT_TRUE(WriteFileDurably(kJobMetrics, path, "old").ok());
  ASSERT_TRUE(ArmFileFaults("job.metrics:EDQUOT:1:1").ok());
  const absl::Status full = WriteFileDurably(kJobMetrics, path, "new");
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(absl::StrContains(std::string(full.message()), path)) << full;
  // Nothing is left to take room.
  EXPECT_EQ(Text(path), "old");
  EXPECT_FALSE(fs::exists(TempName(path)));
}

TEST_F(DurableFileTest, RenamesReplaceKeepOrExchange) {
  fs::create_directories(root_ + "/one/first");
  fs::create_directories(root_ + "/two/second");
  const std::string one = root_ + "/one", two = root_ + "/two";
  EXPECT_EQ(RenameDurably(kOutputRename, one, two, RenameMode::kKeep).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(RenameDurably(kOutputRename, one, two, RenameMode::kReplace).code(),
            absl::StatusCode::kInternal);
  ASSERT_TRUE(
      RenameDurably(kOutputRename, one, two, RenameMode::kExchange).ok());
  EXPECT_TRUE(fs::exists(one + "/second") && fs::exists(two + "/first"));
  ASSERT_TRUE(
      RenameDurably(kOutputRename, one, root_ + "/three", RenameMode::kKeep)
          .ok());
  EXPECT_TRUE(fs::exists(root_ + "/three/second"));
  EXPECT_EQ(RenameDurably(kOutputRename, one, two, RenameMode::kKeep).code(),
            absl::StatusCode::kInternal);
}

TEST_F(DurableFileTest, OnlyRegularFilesAreReadAndNoMoreThanAllowed) {
  const std::string path = root_ + "/text";
  ASSERT_TRUE(WriteFileDurably(kJobMetrics, path, "12345").ok());
  EXPECT_EQ(*ReadWholeFile(kCheckpointRead, path, 5), "12345");
  EXPECT_EQ(ReadWholeFile(kCheckpointRead, path, 4).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadWholeFile(kCheckpointRead, root_ + "/x", 4).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadWholeFile(kCheckpointRead, root_, 4).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(HashFile(kCheckpointRead, pipe).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(ArmFileFaults("checkpoint.read:EIO:ever").ok());
  EXPECT_EQ(HashFile(kCheckpointRead, path).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(DurableFileTest, HashesAreThoseOfFips180) {
  EXPECT_EQ(Sha256Of("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string path = root_ + "/big";
  const std::string content(3'000'000, 'x');
  ASSERT_TRUE(WriteFileDurably(kJobMetrics, path, content).ok());
  const auto hash = HashFile(kCheckpointRead, path);
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->bytes, content.size());
  EXPECT_EQ(hash->sha256, Sha256Of(content));
  const std::atomic<bool> stop = true;
  EXPECT_EQ(HashFile(kCheckpointRead, path, &stop).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(SealedJsonTest, EveryFlippedBitBreaksTheSeal) {
  const std::string sealed = SealJson("{\n  \"step\": 46\n}\n");
  EXPECT_EQ(CheckSeal(sealed), Seal::kWhole);
  for (size_t at = 0; at < sealed.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = sealed;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      EXPECT_NE(CheckSeal(bad), Seal::kWhole) << at << " " << bit;
    }
    EXPECT_NE(CheckSeal(sealed.substr(0, at)), Seal::kWhole) << at;
  }
  EXPECT_EQ(CheckSeal("{\"step\": 46}"), Seal::kNone);
  EXPECT_EQ(CheckSeal(sealed + " "), Seal::kBroken);
}

}  // namespace
}  // namespace roundhouse
