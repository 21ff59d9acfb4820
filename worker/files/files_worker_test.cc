#include "worker/files/files_worker.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/kill_point.h"
#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "worker/files/file_io.h"
#include "worker/files/normal.h"
#include "worker/files/tensor_io.h"
#include "worker/host/test_job.h"

namespace roundhouse::worker {
namespace {

constexpr int kIndex = 1;
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

class FilesTest : public testing::Test {
 protected:
  FilesTest() : job_({}) {
    char name[] = "/tmp/rh_files_XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~FilesTest() override {
    for (const std::string& path : paths_) unlink(path.c_str());
    rmdir(directory_.c_str());
  }

  std::string Path(const std::string& name) {
    paths_.push_back(absl::StrCat(directory_, "/", name));
    return paths_.back();
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = Path(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  wire::BufferRef Put(const std::string& bytes) {
    const wire::BufferRef buffer = job_.Allocate(bytes.size());
    std::memcpy(job_.arena().Bytes(buffer), bytes.data(), bytes.size());
    return buffer;
  }
  wire::FileShard Shard(const std::string& path, uint32_t first_tensor,
                        uint32_t tensors, uint64_t file_bytes,
                        const std::string& prefix = "") {
    const wire::BufferRef text = Put(path);
    const wire::BufferRef head = Put(prefix);
    wire::FileShard shard = {};
    shard.path_offset = text.offset;
    shard.path_bytes = static_cast<uint32_t>(text.bytes);
    shard.first_tensor = first_tensor;
    shard.tensor_count = tensors;
    shard.prefix_offset = head.offset;
    shard.prefix_bytes = head.bytes;
    shard.file_bytes = file_bytes;
    Identify(path, shard);
    return shard;
  }
  // As a load is to find it; a save's file is not there yet.
  static void Identify(const std::string& path, wire::FileShard& shard) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return;
    const FileIdentity identity = IdentityOf(info);
    shard.device = identity.device;
    shard.inode = identity.inode;
    shard.mtime_ns = identity.mtime_ns;
  }
  wire::FileTensor Tensor(uint64_t file_offset, uint64_t count, DType file,
                          const wire::BufferRef& first, DType first_dtype) {
    wire::FileTensor tensor = {};
    tensor.file_offset = file_offset;
    tensor.element_count = count;
    tensor.first_offset = first.offset;
    tensor.file_dtype = file;
    tensor.first_dtype = first_dtype;
    tensor.second_dtype = DType::kF32;
    return tensor;
  }
  wire::FileOp Op(wire::FileOpKind kind,
                  const std::vector<wire::FileShard>& shards,
                  const std::vector<wire::FileTensor>& tensors) {
    wire::FileOp op;
    op.job = TestJob::kJob;
    op.operation = 1;
    op.kind = kind;
    op.shard_count = static_cast<uint32_t>(shards.size());
    op.tensor_count = static_cast<uint32_t>(tensors.size());
    op.shards_offset = Table(shards);
    op.tensors_offset = Table(tensors);
    return op;
  }
  template <typename T>
  uint64_t Table(const std::vector<T>& rows) {
    const uint64_t bytes = rows.size() * sizeof(T);
    const uint64_t offset = job_.Allocate(bytes).offset;
    if (bytes > 0) {
      std::memcpy(job_.arena().At<std::byte>(offset, bytes), rows.data(),
                  bytes);
    }
    return offset;
  }
  wire::FileShard& ShardOf(const wire::FileOp& op, uint32_t index) {
    return job_.arena().At<wire::FileShard>(op.shards_offset,
                                            op.shard_count)[index];
  }

  TestJob job_;
  std::string directory_;
  std::vector<std::string> paths_;
};

std::string Sha256(const std::string& bytes) {
  unsigned char sum[32];
  EVP_Digest(bytes.data(), bytes.size(), sum, nullptr, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<char*>(sum), 32);
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const std::vector<std::string>& texts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& text : texts) {
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << "no \"" << text << "\" in " << status;
  }
}

// 300,000 elements: more than one piece in every dtype, none ends evenly.
constexpr uint64_t kCount = 300001;

TEST_F(FilesTest, RoundTripsEveryPairOfDTypes) {
  for (DType arena_dtype : kDTypes) {
    for (DType file_dtype : kDTypes) {
      const std::string prefix = "a prefix of 23 bytes...";
      const wire::BufferRef from = job_.RandomValues(arena_dtype, 30001);
      const uint64_t tensor_bytes = 30001 * DTypeBytes(file_dtype);
      const uint64_t file_bytes = prefix.size() + 2 * tensor_bytes;
      const std::string path = Path("round_trip");
      const wire::FileOp save =
          Op(wire::FileOpKind::kSave, {Shard(path, 0, 2, file_bytes, prefix)},
             {Tensor(prefix.size(), 30001, file_dtype, from, arena_dtype),
              Tensor(prefix.size() + tensor_bytes, 30001, file_dtype, from,
                     arena_dtype)});
      const auto saved = DoFileOp(job_.arena(), save);
      ASSERT_TRUE(saved.ok()) << saved.status();
      EXPECT_EQ(*saved, file_bytes);
      const std::string bytes = ReadFile(path);
      ASSERT_EQ(bytes.size(), file_bytes);
      EXPECT_EQ(bytes.substr(0, prefix.size()), prefix);
      EXPECT_EQ(std::string(
                    reinterpret_cast<const char*>(ShardOf(save, 0).sha256), 32),
                Sha256(bytes));

      std::vector<float> values(30001);
      ToF32(arena_dtype, job_.arena().Bytes(from), values.data(), 30001);
      std::string want(tensor_bytes, '\0');
      FromF32(file_dtype, values.data(), want.data(), 30001);
      EXPECT_TRUE(bytes.substr(prefix.size(), tensor_bytes) == want);

      const wire::BufferRef first = job_.Allocate(from.bytes);
      const wire::BufferRef second = job_.Allocate(30001 * 4);
      wire::FileTensor tensor = Tensor(prefix.size() + tensor_bytes, 30001,
                                       file_dtype, first, arena_dtype);
      tensor.second_offset = second.offset;
      const wire::FileOp load = Op(wire::FileOpKind::kLoad,
                                   {Shard(path, 0, 1, file_bytes)}, {tensor});
      const auto loaded = DoFileOp(job_.arena(), load);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(*loaded, tensor_bytes);
      ToF32(file_dtype, want.data(), values.data(), 30001);
      std::string want_first(from.bytes, '\0');
      FromF32(arena_dtype, values.data(), want_first.data(), 30001);
      EXPECT_TRUE(job_.Bytes(first) == want_first);
      EXPECT_TRUE(job_.Bytes(second) ==
                  std::string(reinterpret_cast<char*>(values.data()),
                              values.size() * 4));
    }
  }
}

TEST_F(FilesTest, LoadsATensorOfSeveralPieces) {
  const std::string path = Path("pieces");
  const wire::BufferRef from = job_.RandomValues(DType::kBF16, kCount);
  const uint64_t bytes = kCount * 2;
  ASSERT_TRUE(
      DoFileOp(job_.arena(),
               Op(wire::FileOpKind::kSave, {Shard(path, 0, 1, bytes)},
                  {Tensor(0, kCount, DType::kBF16, from, DType::kBF16)}))
          .ok());
  const wire::BufferRef to = job_.Allocate(kCount * 4);
  ASSERT_TRUE(DoFileOp(job_.arena(),
                       Op(wire::FileOpKind::kLoad, {Shard(path, 0, 1, bytes)},
                          {Tensor(0, kCount, DType::kBF16, to, DType::kF32)}))
                  .ok());
  std::vector<float> want(kCount);
  ToF32(DType::kBF16, job_.arena().Bytes(from), want.data(), kCount);
  EXPECT_EQ(std::memcmp(job_.arena().Bytes(to), want.data(), kCount * 4), 0);
}

TEST_F(FilesTest, ATruncatedOrMissingFileIsNamedWithItsBytes) {
  const std::string path = Write("short", std::string(99, 'x'));
  const wire::BufferRef to = job_.Allocate(4096);
  const auto load = [&](const std::string& from, uint64_t file_bytes,
                        uint64_t offset, uint64_t count) {
    return DoFileOp(job_.arena(),
                    Op(wire::FileOpKind::kLoad, {Shard(from, 0, 1, file_bytes)},
                       {Tensor(offset, count, DType::kF32, to, DType::kF32)}))
        .status();
  };
  ExpectError(load(path, 100, 0, 1), absl::StatusCode::kFailedPrecondition,
              {path, "changed since", "99 bytes", "100 then"});
  ExpectError(load(path, 98, 0, 1), absl::StatusCode::kFailedPrecondition,
              {path, "99 bytes", "98 then"});
  ExpectError(load(path, 99, 96, 1), absl::StatusCode::kInvalidArgument,
              {path, "at byte 96"});
  ExpectError(load(path, 99, 200, 1), absl::StatusCode::kInvalidArgument,
              {path, "at byte 200"});
  ExpectError(load(directory_ + "/none", 99, 0, 1), absl::StatusCode::kNotFound,
              {directory_ + "/none"});
  EXPECT_EQ(load(directory_, 99, 0, 1).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(job_.Bytes(to), std::string(4096, '\0'));
}

TEST_F(FilesTest, InitFillsBothCopies) {
  const wire::BufferRef first = job_.Allocate(kCount * 2);
  const wire::BufferRef second = job_.Allocate(kCount * 4);
  std::vector<wire::FileTensor> tensors(3);
  for (uint32_t i = 0; i < 3; ++i) {
    tensors[i] =
        Tensor(0, i == 0 ? kCount : 100, DType::kF32, first, DType::kBF16);
    tensors[i].second_offset = second.offset;
    tensors[i].init = wire::TensorInit::kNormal;
    tensors[i].init_std = 0.5;
    tensors[i].init_stream = 77;
  }
  tensors[1].first_offset = job_.Allocate(200).offset;
  tensors[1].second_offset = 0;
  tensors[1].init = wire::TensorInit::kOnes;
  tensors[2].first_offset = tensors[1].first_offset + 100;
  tensors[2].element_count = 50;
  tensors[2].second_offset = 0;
  tensors[2].init = wire::TensorInit::kZeros;
  wire::FileOp op = Op(wire::FileOpKind::kInit, {}, tensors);
  op.shards_offset = 0;
  op.seed = 9;
  const auto done = DoFileOp(job_.arena(), op);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(*done, kCount * 6 + 100 * 2 + 50 * 2);
  std::vector<float> want(kCount);
  FillNormal(9, 77, 0, 0.5, want.data(), kCount);
  const auto* compute = job_.arena().At<uint16_t>(first.offset, kCount);
  const float* master = job_.Fp32(second.offset, kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(master[i], want[i]) << i;
    ASSERT_EQ(compute[i], F32ToBF16(want[i])) << i;
  }
  tensors[0].init = wire::TensorInit::kUniform;
  op = Op(wire::FileOpKind::kInit, {}, {tensors[0]});
  op.shards_offset = 0;
  op.seed = 9;
  ASSERT_TRUE(DoFileOp(job_.arena(), op).ok());
  FillUniform(9, 77, 0, 0.5, want.data(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(master[i], want[i]) << i;
  const auto* ones = job_.arena().At<uint16_t>(tensors[1].first_offset, 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ones[i], i < 50 ? 0x3f80 : 0);
}

TEST_F(FilesTest, ASaveReplacesALeftoverButNothingElse) {
  const wire::BufferRef from = job_.RandomValues(DType::kF32, 10);
  const auto save = [&](const std::string& path, uint64_t file_bytes) {
    return DoFileOp(job_.arena(),
                    Op(wire::FileOpKind::kSave, {Shard(path, 0, 1, file_bytes)},
                       {Tensor(0, 10, DType::kF32, from, DType::kF32)}))
        .status();
  };
  const std::string leftover = Write("leftover", std::string(1000, 'x'));
  EXPECT_TRUE(save(leftover, 40).ok());
  EXPECT_EQ(ReadFile(leftover), job_.Bytes(from));
  const std::string link = Path("link");
  ASSERT_EQ(symlink(leftover.c_str(), link.c_str()), 0);
  ExpectError(save(link, 40), absl::StatusCode::kAlreadyExists, {link});
  EXPECT_EQ(ReadFile(leftover), job_.Bytes(from));
  const std::string wrong = Path("wrong");
  ExpectError(save(wrong, 41), absl::StatusCode::kInternal,
              {wrong, "40", "41 expected"});
  EXPECT_FALSE(Exists(wrong));
  ExpectError(save(directory_ + "/none/file", 40), absl::StatusCode::kNotFound,
              {"/none/file"});
}

TEST_F(FilesTest, AFullDiskIsNamed) {
  const std::string path = "/dev/full";
  std::unique_ptr<OutputFile> file = OutputFile::Adopt(
      path, Descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC)));
  const std::string bytes(100, 'x');
  ExpectError(file->Write(bytes.data(), bytes.size()),
              absl::StatusCode::kResourceExhausted,
              {path, "after 0 bytes", "No space left"});
  file.reset();
  EXPECT_TRUE(Exists(path));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  std::signal(SIGPIPE, SIG_IGN);
  file = OutputFile::Adopt("broken", Descriptor(ends[1]));
  ExpectError(file->Write(bytes.data(), bytes.size()),
              absl::StatusCode::kInternal, {"broken", "after 0 bytes"});
}

TEST_F(FilesTest, ADiskThatFailsIsTold) {
  const wire::BufferRef from = job_.RandomValues(DType::kF32, 1000);
  const std::string path = Path("saved");
  wire::FileOp op = Op(wire::FileOpKind::kSave, {Shard(path, 0, 1, 4000)},
                       {Tensor(0, 1000, DType::kF32, from, DType::kF32)});
  const std::pair<const char*, absl::StatusCode> errors[] = {
      {"shard.write:ENOSPC", absl::StatusCode::kResourceExhausted},
      {"shard.write:EDQUOT:1:1", absl::StatusCode::kResourceExhausted},
      {"shard.write:EIO:1:1", absl::StatusCode::kInternal},
      {"shard.sync:EIO", absl::StatusCode::kInternal}};
  for (const auto& [fault, code] : errors) {
    ASSERT_TRUE(ArmFileFaults(fault).ok());
    ExpectError(DoFileOp(job_.arena(), op).status(), code, {path});
    EXPECT_FALSE(Exists(path)) << fault;
  }
  ASSERT_TRUE(ArmFileFaults("shard.write:short:3").ok());
  EXPECT_TRUE(DoFileOp(job_.arena(), op).ok());
  EXPECT_EQ(ReadFile(path), job_.Bytes(from));
  // The sum is of what was to be written, so that the file can be told apart.
  const std::string sum = Sha256Of(job_.Bytes(from));
  ASSERT_TRUE(ArmFileFaults("shard.write:flip").ok());
  EXPECT_TRUE(DoFileOp(job_.arena(), op).ok());
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_NE(Sha256Of(ReadFile(path)), sum);
}

// A files worker in a process of its own.
class FilesWorkerTest : public FilesTest {
 protected:
  void Start(const std::string& kill_at, uint64_t file_size_limit = 0) {
    auto ends = wire::Channel::Pair();
    channel_ = std::move(ends->first);
    std::unique_ptr<wire::Channel> theirs = std::move(ends->second);
    pid_ = fork();
    if (pid_ == 0) {
      channel_.reset();
      if (file_size_limit != 0) {
        const rlimit limit = {file_size_limit, file_size_limit};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      const absl::Status armed = ArmKillPoint(kill_at);
      const absl::Status run =
          RunFilesWorker({*theirs, job_.arena(), kIndex, 1});
      _exit(armed.ok() && run.ok() ? 0 : 1);
    }
    daemon_ = std::make_unique<TestDaemon>(*channel_, job_.arena(), kIndex);
  }
  // True when it was killed.
  bool Reap() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      return true;
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return false;
  }
  bool Stop() {
    EXPECT_TRUE(daemon_->Send(wire::Stop{}).ok());
    return Reap();
  }

  std::unique_ptr<wire::Channel> channel_;
  std::unique_ptr<TestDaemon> daemon_;
  pid_t pid_ = -1;
};

TEST_F(FilesWorkerTest, ATooLargeFileFailsAndIsRemovedAndTheWorkerGoesOn) {
  const wire::BufferRef from = job_.RandomValues(DType::kF32, kCount);
  const std::string path = Path("large");
  Start("", 1000000);
  wire::FileOp op = Op(wire::FileOpKind::kSave, {Shard(path, 0, 1, kCount * 4)},
                       {Tensor(0, kCount, DType::kF32, from, DType::kF32)});
  ExpectError(daemon_->Call(op).status(), absl::StatusCode::kResourceExhausted,
              {path, "after 1000000 bytes", "File too large"});
  EXPECT_FALSE(Exists(path));
  op = Op(wire::FileOpKind::kSave, {Shard(path, 0, 1, 4000)},
          {Tensor(0, 1000, DType::kF32, from, DType::kF32)});
  const auto done = daemon_->Call(op);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(std::get<wire::FileOpDone>(*done).bytes, 4000u);
  EXPECT_FALSE(daemon_->Call(wire::HostOp{}).ok());
  EXPECT_FALSE(Stop());
}

TEST_F(FilesWorkerTest, KilledAtEveryPointASuccessorSavesAndLoadsTheSame) {
  const wire::BufferRef from = job_.RandomValues(DType::kF32, 20000);
  const wire::BufferRef to = job_.Allocate(80000);
  const std::vector<std::string> names = {Path("one"), Path("two")};
  std::vector<wire::FileShard> shards;
  std::vector<wire::FileTensor> out;
  std::vector<wire::FileTensor> in;
  for (uint32_t t = 0; t < 4; ++t) {
    const uint64_t at = 20000 * t;
    out.push_back(Tensor(t % 2 * 20000, 5000, DType::kF32,
                         {from.offset + at, 20000}, DType::kF32));
    in.push_back(Tensor(t % 2 * 20000, 5000, DType::kF32,
                        {to.offset + at, 20000}, DType::kF32));
  }
  for (uint32_t s = 0; s < 2; ++s) {
    shards.push_back(Shard(names[s], 2 * s, 2, 40000));
  }
  const std::vector<wire::FileOp> ops = {
      Op(wire::FileOpKind::kSave, shards, out),
      Op(wire::FileOpKind::kLoad, shards, in)};
  const struct {
    const char* name;
    int visits;
  } points[] = {{"files.load.tensor", 4},       {"files.save.tensor", 4},
                {"files.save.before_fsync", 2}, {"files.save.after_fsync", 2},
                {"files.done.before", 2},       {"files.done.after", 2}};
  // The second one loads what the first one has saved.
  const auto call = [&](size_t op) {
    for (uint32_t s = 0; op == 1 && s < 2; ++s) {
      Identify(names[s], ShardOf(ops[1], s));
    }
    return daemon_->Call(ops[op]);
  };
  for (const auto& point : points) {
    for (int visit = 1; visit <= point.visits; ++visit) {
      const std::string kill_at = absl::StrCat(point.name, ":", visit);
      std::memset(job_.arena().Bytes(to), 0, to.bytes);
      Start(kill_at);
      size_t next = 0;
      while (next < 2 && call(next).ok()) ++next;
      ASSERT_TRUE(next < 2 || std::string(point.name) == "files.done.after");
      ASSERT_TRUE(Reap()) << kill_at;
      Start("");
      for (; next < 2; ++next) {
        const auto done = call(next);
        ASSERT_TRUE(done.ok()) << kill_at << ": " << done.status();
      }
      ASSERT_FALSE(Stop());
      ASSERT_EQ(ReadFile(names[0]) + ReadFile(names[1]), job_.Bytes(from));
      ASSERT_EQ(job_.Bytes(to), job_.Bytes(from)) << kill_at;
      for (uint32_t s = 0; s < 2; ++s) {
        ASSERT_EQ(std::memcmp(ShardOf(ops[0], s).sha256,
                              Sha256(ReadFile(names[s])).data(), 32),
                  0);
      }
    }
  }
}

}  // namespace
}  // namespace roundhouse::worker
