#include "client/transfer/download.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/upload_names.h"
#include "client/interrupt.h"
#include "client/transfer/byte_progress.h"
#include "client/transfer/chunk_run.h"

namespace roundhouse::client {
namespace {

constexpr char kPartSuffix[] = ".part";
// Times that a file may come again because its hash is not the server's.
constexpr int kMaxRepeats = 3;

grpc::Status Interrupted() {
  return grpc::Status(grpc::StatusCode::CANCELLED, "interrupted");
}

grpc::Status ToStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

// Which files they are, and in which state.
std::string KeyOf(const DownloadWish& wish,
                  const v1::ListOutputFilesResponse& list) {
  std::string key = absl::StrCat(wish.source, "\n");
  for (const v1::OutputFile& file : list.files()) {
    absl::StrAppend(&key, file.state(), " ", file.size_bytes(), " ",
                    file.name(), "\n");
  }
  return key;
}

// What a server says is no reason to write outside of the folder.
absl::StatusOr<std::vector<ArrivingFile>> FilesOf(
    const v1::ListOutputFilesResponse& list) {
  std::vector<ArrivingFile> files;
  std::vector<std::string> names;
  for (const v1::OutputFile& file : list.files()) {
    names.push_back(file.name());
    if (file.size_bytes() < 0) {
      return absl::InternalError("the server names a size below 0");
    }
    files.push_back({.name = file.name(),
                     .bytes = static_cast<uint64_t>(file.size_bytes())});
  }
  const absl::Status sound = CheckRelativeNames(names);
  if (!sound.ok()) return sound;
  return files;
}

// One download, try after try.
class Downloader {
 public:
  Downloader(const DownloadWish& wish, Session* session)
      : wish_(wish), session_(*session), progress_(&session->environment()) {}

  // One try.  OK: the directory is there.
  grpc::Status Run() {
    moved_ = false;
    comes_again_ = false;
    grpc::Status status = OpenFiles();
    if (status.ok()) status = Fetch();
    if (status.ok()) status = CheckAll();
    progress_.Finish();
    if (!status.ok()) return status;
    return ToStatus(files_->Publish(wish_.directory, wish_.there));
  }
  bool moved() const { return moved_; }
  bool comes_again() const { return comes_again_; }

 private:
  grpc::Status OpenFiles() {
    v1::ListOutputFilesRequest request;
    request.set_source(wish_.source);
    v1::ListOutputFilesResponse list;
    UnaryContext context(session_.interrupt());
    const grpc::Status status =
        session_.checkpoints().ListOutputFiles(context.get(), request, &list);
    if (!status.ok()) return status;
    auto files = FilesOf(list);
    if (!files.ok()) return ToStatus(files.status());
    list_ = std::move(list);
    total_ = 0;
    for (const ArrivingFile& file : *files) total_ += file.bytes;
    // A try of before knows exactly how far it came.
    std::string key = KeyOf(wish_, list_);
    if (files_ != nullptr && key == key_) return status;
    auto arriving = ArrivingFiles::Open(wish_.directory + kPartSuffix, key,
                                        *std::move(files));
    if (!arriving.ok()) return ToStatus(arriving.status());
    key_ = std::move(key);
    files_ = *std::move(arriving);
    return status;
  }

  grpc::Status Fetch() {
    std::vector<uint64_t> sizes;
    for (const v1::OutputFile& file : list_.files()) {
      sizes.push_back(static_cast<uint64_t>(file.size_bytes()));
    }
    std::vector<uint64_t> there = files_->there();
    uint64_t done = 0;
    for (const uint64_t bytes : there) done += bytes;
    progress_.Begin("downloading", done, total_);
    ChunkRun run(std::move(sizes), std::move(there));
    const grpc::Status status =
        run.Run([this](const Chunk& chunk,
                       uint64_t* now) { return FetchOne(chunk, now); },
                [this](uint64_t now) { progress_.Update(now); });
    moved_ = run.has_moved();
    return status;
  }

  grpc::Status FetchOne(const Chunk& chunk, uint64_t* there) {
    const v1::OutputFile& file = list_.files(static_cast<int>(chunk.file));
    v1::ReadOutputFileRequest request;
    request.set_source(wish_.source);
    request.set_name(file.name());
    request.set_state(file.state());
    request.set_offset(static_cast<int64_t>(chunk.offset));
    v1::ReadOutputFileResponse response;
    UnaryContext context(session_.interrupt());
    const grpc::Status status = session_.checkpoints().ReadOutputFile(
        context.get(), request, &response);
    if (!status.ok()) return status;
    if (response.data().size() < chunk.bytes ||
        Crc32c(response.data()) != response.crc32c()) {
      return grpc::Status(
          grpc::StatusCode::ABORTED,
          absl::StrCat(file.name(), ": a piece was damaged on its way"));
    }
    const auto put =
        files_->Put(chunk.file, chunk.offset,
                    absl::string_view(response.data()).substr(0, chunk.bytes));
    if (!put.ok()) return ToStatus(put.status());
    *there = *put;
    return status;
  }

  grpc::Status CheckAll() {
    progress_.Begin("checking", 0, total_);
    uint64_t checked = 0;
    for (int i = 0; i < list_.files_size(); ++i) {
      const v1::OutputFile& file = list_.files(i);
      std::string sha256;
      const grpc::Status status = AskHash(file, checked, &sha256);
      if (!status.ok()) return status;
      const auto own = files_->Hash(static_cast<size_t>(i));
      if (!own.ok()) return ToStatus(own.status());
      checked += static_cast<uint64_t>(file.size_bytes());
      progress_.Update(checked);
      if (*own == sha256) continue;
      comes_again_ = true;
      const absl::Status dropped = files_->Drop(static_cast<size_t>(i));
      if (!dropped.ok()) return ToStatus(dropped);
      return grpc::Status(
          grpc::StatusCode::DATA_LOSS,
          absl::StrCat(file.name(), ": has the SHA-256 ", *own, " here, and ",
                       sha256, " on the server"));
    }
    return grpc::Status::OK;
  }

  grpc::Status AskHash(const v1::OutputFile& file, uint64_t before,
                       std::string* sha256) {
    v1::HashOutputFileRequest request;
    request.set_source(wish_.source);
    request.set_name(file.name());
    request.set_state(file.state());
    int64_t hashed = 0;
    int begun_again = 0;
    while (!session_.interrupt()->requested()) {
      v1::HashOutputFileResponse response;
      UnaryContext context(session_.interrupt());
      const grpc::Status status = session_.checkpoints().HashOutputFile(
          context.get(), request, &response);
      if (status.error_code() == grpc::StatusCode::ABORTED) {
        // Another file of the same user is being hashed.
        const auto& retry = session_.environment().stream_retry;
        if (!session_.interrupt()->Wait(retry.DelayAfter(1))) break;
        continue;
      }
      if (!status.ok()) return status;
      if (response.hashed_bytes() < hashed && ++begun_again > kMaxRepeats) {
        return grpc::Status(
            grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat(file.name(),
                         ": the server hashes too many files at "
                         "once; give the command again later"));
      }
      hashed = response.hashed_bytes();
      progress_.Update(before + static_cast<uint64_t>(hashed));
      if (response.sha256().empty()) continue;
      *sha256 = response.sha256();
      return status;
    }
    return Interrupted();
  }

  const DownloadWish& wish_;
  Session& session_;
  ByteProgress progress_;
  v1::ListOutputFilesResponse list_;
  std::unique_ptr<ArrivingFiles> files_;
  std::string key_;  // of files_
  uint64_t total_ = 0;
  bool moved_ = false;
  bool comes_again_ = false;
};

}  // namespace

grpc::Status Download(const DownloadWish& wish, Session* session) {
  std::error_code error;
  const auto there = std::filesystem::symlink_status(wish.directory, error);
  if (there.type() != std::filesystem::file_type::not_found &&
      wish.there == WhatIsThere::kStays) {
    return grpc::Status(
        grpc::StatusCode::ALREADY_EXISTS,
        absl::StrCat(wish.directory,
                     ": is there already; --force replaces it"));
  }
  Downloader downloader(wish, session);
  const RetryPolicy& retry = session->environment().stream_retry;
  ProgressPrinter printer = session->PlainPrinter(&session->err());
  const StreamOptions options = session->Streams(&printer);
  int failures = 0, repeats = 0;
  while (true) {
    const grpc::Status status = downloader.Run();
    if (status.ok()) return status;
    if (session->interrupt()->requested()) return Interrupted();
    if (downloader.comes_again() && ++repeats < kMaxRepeats) continue;
    failures = downloader.moved() ? 1 : failures + 1;
    if (!CanMoveAgain(status) || failures >= retry.attempts) return status;
    options.on_broken(status, downloader.moved());
    if (!session->interrupt()->Wait(retry.DelayAfter(failures))) {
      return Interrupted();
    }
  }
}

}  // namespace roundhouse::client
