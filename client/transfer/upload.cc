#include "client/transfer/upload.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/files/durable_file.h"
#include "base/upload_names.h"
#include "client/interrupt.h"
#include "client/transfer/byte_progress.h"
#include "client/transfer/chunk_run.h"

namespace roundhouse::client {
namespace {

// A name that says the contents: so much of the path, and of the hash.
constexpr size_t kMaxPathNameBytes = 40;
constexpr size_t kContentDigits = 12;

grpc::Status Interrupted() {
  return grpc::Status(grpc::StatusCode::CANCELLED, "interrupted");
}

v1::CreateUploadRequest RequestFor(const UploadWish& wish,
                                   const LocalFiles& files) {
  v1::CreateUploadRequest request;
  request.set_kind(wish.kind);
  request.set_name(wish.name);
  request.set_project(wish.project);
  for (const LocalFile& file : files.files) {
    v1::UploadedFile* const added = request.add_files();
    added->set_name(file.name);
    added->set_size_bytes(static_cast<int64_t>(file.identity.size_bytes));
    added->set_sha256(file.sha256);
  }
  return request;
}

// One try after the other, each from where the server is.
class Attempt {
 public:
  Attempt(const UploadWish& wish, const LocalFiles& files, Session* session,
          ByteProgress* progress)
      : files_(files),
        session_(*session),
        progress_(*progress),
        request_(RequestFor(wish, files)) {}

  grpc::Status Run(v1::Upload* upload) {
    moved_ = false;
    comes_again_ = false;
    UnaryContext context(session_.interrupt());
    const grpc::Status begun =
        session_.uploads().CreateUpload(context.get(), request_, upload);
    if (!begun.ok() || upload->state() == v1::UPLOAD_STATE_FINISHED) {
      return begun;
    }
    const grpc::Status sent = SendAll(*upload);
    return sent.ok() ? Check(upload) : sent;
  }

  bool moved() const { return moved_; }
  // The server threw away what came of a file.
  bool comes_again() const { return comes_again_; }

 private:
  grpc::Status SendAll(const v1::Upload& upload) {
    std::vector<uint64_t> sizes, received;
    uint64_t done = 0;
    for (const LocalFile& file : files_.files) {
      sizes.push_back(file.identity.size_bytes);
    }
    for (const int64_t bytes : upload.received_bytes()) {
      received.push_back(static_cast<uint64_t>(bytes));
      done += received.back();
    }
    progress_.Begin("uploading", done, files_.bytes());
    ChunkRun run(std::move(sizes), std::move(received));
    const grpc::Status status = run.Run(
        [&](const Chunk& chunk, uint64_t* there) {
          return Send(upload.id(), chunk, there);
        },
        [this](uint64_t now) { progress_.Update(now); });
    moved_ = run.has_moved();
    return status;
  }

  grpc::Status Send(const std::string& id, const Chunk& chunk,
                    uint64_t* there) const {
    v1::UploadChunkRequest request;
    const absl::Status read =
        ReadLocalFile(files_.files[chunk.file], chunk.offset, chunk.bytes,
                      request.mutable_data());
    if (!read.ok()) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          std::string(read.message()));
    }
    request.set_id(id);
    request.set_file(static_cast<int32_t>(chunk.file));
    request.set_offset(static_cast<int64_t>(chunk.offset));
    request.set_crc32c(Crc32c(request.data()));
    v1::UploadChunkResponse response;
    UnaryContext context(session_.interrupt());
    const grpc::Status status =
        session_.uploads().UploadChunk(context.get(), request, &response);
    *there = static_cast<uint64_t>(response.received_bytes());
    return status;
  }

  grpc::Status Check(v1::Upload* upload) {
    v1::FinishUploadRequest request;
    request.set_id(upload->id());
    progress_.Begin("checking", 0, files_.bytes());
    while (!session_.interrupt()->requested()) {
      UnaryContext context(session_.interrupt());
      const grpc::Status status =
          session_.uploads().FinishUpload(context.get(), request, upload);
      if (status.error_code() == grpc::StatusCode::ABORTED) {
        // Another upload of the same user is being checked.
        moved_ = true;
        const auto& retry = session_.environment().stream_retry;
        if (!session_.interrupt()->Wait(retry.DelayAfter(1))) break;
        continue;
      }
      if (!status.ok()) {
        comes_again_ =
            status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
        return status;
      }
      if (upload->state() == v1::UPLOAD_STATE_FINISHED) return status;
      moved_ = true;
      progress_.Update(static_cast<uint64_t>(upload->verified_bytes()));
    }
    return Interrupted();
  }

  const LocalFiles& files_;
  Session& session_;
  ByteProgress& progress_;
  const v1::CreateUploadRequest request_;
  bool moved_ = false;
  bool comes_again_ = false;
};

}  // namespace

std::string NameOfPath(const std::string& path, bool is_folder) {
  std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return UploadNameFrom((is_folder ? whole.filename() : whole.stem()).string());
}

std::string NameOfContents(const std::string& path, const LocalFiles& files) {
  Sha256 hash;
  for (const LocalFile& file : files.files) {
    hash.Add(file.sha256);
    hash.Add(" ");
    hash.Add(file.name);
    hash.Add("\n");
  }
  const std::string name = NameOfPath(path, files.files.size() > 1);
  return absl::StrCat(name.empty() ? "file" : name.substr(0, kMaxPathNameBytes),
                      "-", hash.Finish().substr(0, kContentDigits));
}

grpc::Status HashFiles(LocalFiles* files, Session* session) {
  ByteProgress progress(&session->environment());
  progress.Begin("reading", 0, files->bytes());
  uint64_t read = 0;
  const absl::Status hashed = HashLocalFiles(files, [&](uint64_t bytes) {
    progress.Update(read += bytes);
    return !session->interrupt()->requested();
  });
  progress.Finish();
  return grpc::Status(static_cast<grpc::StatusCode>(hashed.code()),
                      std::string(hashed.message()));
}

grpc::Status Upload(const UploadWish& wish, const LocalFiles& files,
                    Session* session, v1::Upload* upload) {
  ByteProgress progress(&session->environment());
  Attempt attempt(wish, files, session, &progress);
  const RetryPolicy& retry = session->environment().stream_retry;
  ProgressPrinter printer = session->PlainPrinter(&session->err());
  const StreamOptions options = session->Streams(&printer);
  int failures = 0, repeats = 0;
  while (true) {
    const grpc::Status status = attempt.Run(upload);
    progress.Finish();
    if (status.ok()) return status;
    if (session->interrupt()->requested()) return Interrupted();
    if (attempt.comes_again() && ++repeats < kMaxUploadRepeats) continue;
    failures = attempt.moved() ? 1 : failures + 1;
    if (!CanMoveAgain(status) || failures >= retry.attempts) return status;
    options.on_broken(status, attempt.moved());
    if (!session->interrupt()->Wait(retry.DelayAfter(failures))) {
      return Interrupted();
    }
  }
}

}  // namespace roundhouse::client
