#include "server/hub/model_pull.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/status.h"
#include "base/upload_names.h"

namespace roundhouse {
namespace {

absl::Status Stopped() {
  return absl::CancelledError(
      "the pull was stopped; what has come is kept, the same pull goes on with "
      "it");
}

PulledModel ResultOf(UploadRecord record, std::string commit,
                     std::vector<std::string> left_out) {
  PulledModel out{.record = std::move(record),
                  .commit = std::move(commit),
                  .left_out_count = left_out.size()};
  left_out.resize(std::min(left_out.size(), kMaxLeftOutNames));
  out.left_out = std::move(left_out);
  return out;
}

}  // namespace

ModelPull::ModelPull(const PullWish& wish, const HubAddress& hub,
                     WebSource* source, const HubPatience& patience,
                     Uploads* uploads, PullTask* task)
    : wish_(wish),
      uploads_(*uploads),
      task_(*task),
      hub_(hub, source, patience,
           [this](const std::string& why, absl::Duration time) {
             return WaitForTry(why, time);
           }) {}

bool ModelPull::WaitForTry(const std::string& why, absl::Duration time) {
  progress_.trouble = why;
  Show();
  const bool goes_on = task_.Wait(time);
  progress_.trouble.clear();
  Show();
  return goes_on;
}

absl::StatusOr<PulledModel> ModelPull::Run() {
  RETURN_IF_ERROR(Choose());
  if (task_.cancelled()) return Stopped();
  ASSIGN_OR_RETURN(UploadProgress upload, Create());
  ASSIGN_OR_RETURN(UploadRecord record, Fill(std::move(upload)));
  return ResultOf(std::move(record), std::move(listing_.commit),
                  std::move(choice_.left_out));
}

absl::Status ModelPull::ReadWhole(const HubFile& file) {
  ASSIGN_OR_RETURN(std::string text,
                   hub_.ReadWhole(wish_.model.id, listing_.commit, file));
  texts_[file.name] = std::move(text);
  return absl::OkStatus();
}

absl::Status ModelPull::Choose() {
  Show();
  ASSIGN_OR_RETURN(listing_, hub_.List(wish_.model));
  const HubFile* const shards = ShardIndex(listing_);
  if (shards != nullptr) RETURN_IF_ERROR(ReadWhole(*shards));
  const std::string none;
  const std::string& index = shards == nullptr ? none : texts_.at(shards->name);
  ASSIGN_OR_RETURN(choice_, ChooseFiles(listing_, index));
  for (const HubFile& file : choice_.files) {
    if (!file.sha256.empty() || texts_.contains(file.name)) continue;
    RETURN_IF_ERROR(ReadWhole(file));
  }
  return absl::OkStatus();
}

UploadedFiles ModelPull::Files() const {
  UploadedFiles files;
  for (const HubFile& file : choice_.files) {
    files.push_back({.name = file.name,
                     .bytes = file.bytes,
                     .sha256 = file.sha256.empty()
                                   ? Sha256Of(texts_.at(file.name))
                                   : file.sha256});
  }
  return files;
}

absl::StatusOr<UploadProgress> ModelPull::Create() {
  const NewUpload upload{.kind = UploadKind::kModel,
                         .name = wish_.name,
                         .project = wish_.project,
                         .owner = wish_.owner,
                         .files = Files()};
  return uploads_.Create(upload, wish_.reads, [&](uint64_t bytes) {
    return wish_.room(upload, bytes);
  });
}

absl::StatusOr<UploadRecord> ModelPull::Fill(UploadProgress upload) {
  progress_.total_bytes = choice_.bytes();
  progress_.file_count = choice_.files.size();
  for (int repeats = 0; !upload.finished(); ++repeats) {
    RETURN_IF_ERROR(FetchMissing(upload));
    const std::string id = upload.record.id;
    absl::StatusOr<UploadProgress> checked = Check(id);
    if (checked.ok()) return std::move(checked->record);
    if (!absl::IsFailedPrecondition(checked.status())) return checked.status();
    // A file was not what its hash says, and is gone.
    ASSIGN_OR_RETURN(upload, uploads_.Get(id));
    if (repeats < kMaxPullRepeats) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("what the hub sends is not what it lists, ", repeats + 1,
                     " times in a row: ", checked.status().message()));
  }
  return std::move(upload.record);
}

absl::Status ModelPull::FetchMissing(const UploadProgress& upload) {
  progress_.phase = PullPhase::kFetching;
  progress_.done_bytes = 0;
  for (const uint64_t bytes : upload.received) progress_.done_bytes += bytes;
  for (size_t i = 0; i < choice_.files.size(); ++i) {
    const HubFile& file = choice_.files[i];
    const uint64_t from = upload.received[i];
    if (from == file.bytes) continue;
    progress_.file = i + 1;
    progress_.file_name = file.name;
    Show();
    const auto text = texts_.find(file.name);
    RETURN_IF_ERROR(text == texts_.end()
                        ? FetchFile(upload.record.id, i, from)
                        : PutText(upload.record.id, i, text->second, from));
  }
  return absl::OkStatus();
}

absl::Status ModelPull::Put(const std::string& id, size_t index,
                            uint64_t offset, absl::string_view data) {
  if (data.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(uploads_.PutChunk(id, index, offset, data).status());
  progress_.done_bytes += data.size();
  Show();
  return task_.cancelled() ? Stopped() : absl::OkStatus();
}

absl::Status ModelPull::PutText(const std::string& id, size_t index,
                                const std::string& text, uint64_t from) {
  for (uint64_t at = from; at < text.size(); at += kUploadChunkBytes) {
    RETURN_IF_ERROR(Put(id, index, at,
                        absl::string_view(text).substr(at, kUploadChunkBytes)));
  }
  return absl::OkStatus();
}

absl::Status ModelPull::FetchFile(const std::string& id, size_t index,
                                  uint64_t from) {
  std::string chunk;
  uint64_t at = from;  // where the chunk begins
  absl::Status put;
  const auto flush = [&]() -> absl::Status {
    put = Put(id, index, at, chunk);
    if (!put.ok()) return put;
    at += chunk.size();
    chunk.clear();
    return absl::OkStatus();
  };
  const absl::Status read =
      hub_.Read(wish_.model.id, listing_.commit, choice_.files[index], from,
                [&](absl::string_view data) -> absl::Status {
                  while (!data.empty()) {
                    const size_t some = std::min<size_t>(
                        data.size(), kUploadChunkBytes - chunk.size());
                    chunk.append(data.data(), some);
                    data.remove_prefix(some);
                    if (chunk.size() == kUploadChunkBytes)
                      RETURN_IF_ERROR(flush());
                  }
                  return absl::OkStatus();
                });
  // What came before an error of the hub is kept, too.
  const absl::Status kept = put.ok() ? flush() : put;
  if (absl::IsCancelled(read)) return Stopped();
  return read.ok() ? kept : read;
}

absl::StatusOr<UploadProgress> ModelPull::Check(const std::string& id) {
  progress_.phase = PullPhase::kChecking;
  progress_.file = 0;
  progress_.file_name.clear();
  while (true) {
    absl::StatusOr<UploadProgress> upload = uploads_.Finish(id);
    const bool busy = absl::IsAborted(upload.status());
    if (!upload.ok() && !busy) return upload.status();
    if (upload.ok() && upload->finished()) return upload;
    if (upload.ok()) progress_.done_bytes = upload->verified_bytes;
    Show();
    const bool goes_on = busy ? task_.Wait(kCheckWait) : !task_.cancelled();
    if (!goes_on) return Stopped();
  }
}

}  // namespace roundhouse
