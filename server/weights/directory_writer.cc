#include "server/weights/directory_writer.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

std::vector<CheckpointShard> ShardsOf(const DirectoryPlan& plan,
                                      const FileTable& table) {
  std::vector<CheckpointShard> shards;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const FilePart& part = plan.parts[i];
    shards.push_back({std::filesystem::path(part.path).filename().string(),
                      part.file_bytes, table.Sha256(static_cast<int>(i))});
  }
  return shards;
}

// The sizes of the files that lie directly in it.
uint64_t BytesIn(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(path, error);
       !error && file != std::filesystem::directory_iterator();
       file.increment(error)) {
    std::error_code gone;
    const uintmax_t size = file->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

absl::Status AddParts(DirectoryPlan& plan) {
  if (plan.add_parts == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(plan.add_parts(plan));
  plan.add_parts = nullptr;
  return absl::OkStatus();
}

// Bytes of disk that a directory takes.
uint64_t DirectoryBytes(const DirectoryPlan& plan) {
  uint64_t bytes = plan.total_bytes;
  for (const auto& [name, text] : plan.texts) bytes += text.size();
  for (const std::string& path : plan.copied_files) {
    std::error_code error;
    const uint64_t copied = std::filesystem::file_size(path, error);
    if (!error) bytes += copied;
  }
  return bytes;
}

}  // namespace

void DirectoryWriter::Write(DirectoryPlan plan, Done done) {
  Begin({std::make_shared<DirectoryPlan>(std::move(plan)), std::move(done)});
}

void DirectoryWriter::Begin(const Job& job) {
  around_.background.Run(
      [plan = job.plan, need_bytes = job.need_bytes]() -> absl::Status {
        RETURN_IF_ERROR(AddParts(*plan));
        *need_bytes = DirectoryBytes(*plan);
        return BeginDirectory(*plan);
      },
      [this, job](const absl::Status& begun) {
        if (begun.ok()) {
          WriteParts(job);
        } else if (job.plan->add_parts != nullptr) {
          job.done(begun);  // no room on a disk would change it
        } else {
          Abandon(job, begun);
        }
      });
}

void DirectoryWriter::WriteParts(const Job& job) {
  auto table = FileTable::Create(around_.arena, wire::FileOpKind::kSave,
                                 job.plan->parts);
  if (!table.ok()) {
    // Not of the disk, which RESOURCE_EXHAUSTED stands for here.
    Abandon(job, absl::UnavailableError(table.status().message()));
    return;
  }
  around_.operation.Run(
      *std::move(table), [this, job](const absl::Status& written) {
        if (!written.ok()) {
          Abandon(job, written);
          return;
        }
        DirectoryPlan& plan = *job.plan;
        if (plan.manifest.has_value()) {
          plan.manifest->shards = ShardsOf(plan, around_.operation.table());
        }
        Finish(job);
      });
}

void DirectoryWriter::Finish(const Job& job) {
  // Shared: written off the loop, read on it.
  auto bytes = std::make_shared<uint64_t>(0);
  around_.background.Run(
      [plan = job.plan, bytes] {
        const absl::Status status = FinishDirectory(*plan);
        if (!status.ok()) AbandonDirectory(*plan);
        if (status.ok()) *bytes = BytesIn(plan->final_path);
        return status;
      },
      [this, job, bytes](const absl::Status& finished) {
        finished_bytes_ = *bytes;
        OnWritten(job, finished);
      });
}

void DirectoryWriter::Abandon(const Job& job, const absl::Status& why) {
  around_.background.Run(
      [plan = job.plan] {
        AbandonDirectory(*plan);
        return absl::OkStatus();
      },
      [this, job, why](const absl::Status&) { OnWritten(job, why); });
}

void DirectoryWriter::OnWritten(const Job& job, const absl::Status& status) {
  if (!status.ok() && owner_.Holds(*job.plan, status)) {
    held_ = Held{job};
    owner_.OnHeld(*job.plan, status, *job.need_bytes);
    return;
  }
  const bool was_held = std::exchange(held_, std::nullopt).has_value();
  if (was_held) owner_.OnUnheld();
  job.done(status);
  if (was_held) owner_.OnResumed();
}

void DirectoryWriter::TryAgain() {
  ROUNDHOUSE_CHECK(waiting());
  held_->trying = true;
  Begin(held_->job);
}

void DirectoryWriter::GiveUp() {
  if (!waiting()) return;
  const Job job = std::exchange(held_, std::nullopt)->job;
  job.done(absl::CancelledError("the job stops"));
}

}  // namespace roundhouse
