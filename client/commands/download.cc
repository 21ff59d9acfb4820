#include "client/commands/download.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "client/tables/message_json.h"
#include "client/transfer/byte_progress.h"
#include "client/transfer/download.h"

namespace roundhouse::client {
namespace {

constexpr char kMergedSuffix[] = "-merged";
constexpr char kJobs[] = "fineTuningJobs/";

// "projects/p/fineTuningJobs/job-7/checkpoints/4" -> "job-7-checkpoints-4".
std::string NameOf(const std::string& job) {
  const size_t jobs = job.find(kJobs);
  return UploadNameFrom(
      jobs == std::string::npos ? job : job.substr(jobs + sizeof(kJobs) - 1));
}

// What it is called among the server's outputs when it is merged.
std::string MergedName(const std::string& job) {
  return absl::StrCat(
      NameOf(job).substr(0, kMaxOutputNameBytes - sizeof(kMergedSuffix) + 1),
      kMergedSuffix);
}

class DownloadCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status Merge(const std::string& job, Session* session) const;

  std::string output_;
  bool merged_ = false;
  bool force_ = false;
};

const CommandInfo& DownloadCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "download",
      "JOB|CHECKPOINT",
      "the results of a job, into a directory of this machine",
      "What a job left (job-7, or its output_name), or one of its checkpoints\n"
      "(job-7/checkpoint-40).  The directory is there whole or not at all: "
      "what "
      "has come\nover lies in DIRECTORY.part until all of it is checked, and "
      "the same command goes\non with it.\n\nWith --merged the server first "
      "merges an adapter into its base, as export --merge\ndoes; that model "
      "stays among the server's outputs as JOB-merged, and is used again.",
      1,
      1};
  return info;
}

void DownloadCommand::DefineFlags(FlagSet* flags) {
  flags->AddBool("merged", 0, &merged_, "the adapter merged into its base");
  flags->AddString("output", 0, "DIRECTORY", &output_,
                   "where to; the job's name when not given");
  flags->AddBool("force", 0, &force_, "replace the directory that is there");
}

grpc::Status DownloadCommand::Merge(const std::string& job,
                                    Session* session) const {
  v1::ExportCheckpointRequest request;
  request.set_source(job);
  request.set_kind(v1::EXPORT_KIND_MERGED);
  request.set_output(MergedName(job));
  ByteProgress progress(&session->environment());
  // As long as the model is.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const auto reader =
      session->checkpoints().ExportCheckpoint(context.get(), request);
  v1::ExportCheckpointResponse message;
  bool begun = false;
  while (reader->Read(&message)) {
    const auto done = static_cast<uint64_t>(message.done_bytes());
    if (message.total_bytes() > 0 && !begun) {
      begun = true;
      progress.Begin("merging", done,
                     static_cast<uint64_t>(message.total_bytes()));
    }
    if (begun) progress.Update(done);
  }
  progress.Finish();
  const grpc::Status status = reader->Finish();
  if (status.error_code() != grpc::StatusCode::ALREADY_EXISTS) return status;
  session->err() << VisibleLine(MergedName(job))
                 << " is among the server's outputs already and comes as it "
                    "is, even if the job went on since.  For another:\n  "
                 << session->CommandLine(
                        absl::StrCat("export ", job, " --merge --output NAME"))
                 << ", then download NAME\n"
                 << std::flush;
  return grpc::Status::OK;
}

ExitCode DownloadCommand::Run(const std::vector<std::string>& arguments,
                              Session* session) {
  const std::string& job = arguments[0];
  DownloadWish wish{.source = job,
                    .directory = output_,
                    .there = force_ ? WhatIsThere::kGoes : WhatIsThere::kStays};
  if (wish.directory.empty()) {
    wish.directory = merged_ ? MergedName(job) : NameOf(job);
  }
  while (wish.directory.size() > 1 && wish.directory.back() == '/') {
    wish.directory.pop_back();
  }
  grpc::Status status;
  if (merged_) {
    status = Merge(job, session);
    wish.source = MergedName(job);
  }
  if (status.ok()) status = Download(wish, session);
  if (!status.ok()) return session->Fail("download " + job, status);
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText({{"directory", wish.directory}}, 2) << "\n";
  } else {
    session->out() << VisibleLine(wish.directory) << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDownloadCommand() {
  return std::make_unique<DownloadCommand>();
}

}  // namespace roundhouse::client
