#include "client/commands/prune.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/consent.h"
#include "client/patient_call.h"
#include "client/tables/disk_output.h"
#include "client/tables/message_json.h"
#include "client/time_span.h"

namespace roundhouse::client {
namespace {

// The server's limit.
constexpr size_t kMaxSteps = 1000;

class PruneCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  using Checkpoints = std::vector<v1::Checkpoint>;

  grpc::Status Find(Session* session, Checkpoints* found);
  // Deletes those of one job; what went is added to `gone`.
  ExitCode Delete(const std::string& job, const Checkpoints& checkpoints,
                  Session* session, Checkpoints* gone) const;
  void Show(const Checkpoints& checkpoints, const std::string& text,
            Session* session) const;

  int64_t keep_ = 1;
  std::string older_than_;
  std::string project_;
  bool all_ = false;
  bool dry_run_ = false;
  bool yes_ = false;
  v1::ListOldCheckpointsRequest request_;
};

const CommandInfo& PruneCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "prune", "", "old checkpoints of jobs that have ended go",
      "Lists them with their bytes, and asks.  The newest of each job stays, "
      "so that another\njob can go on from it; results of jobs stay in any "
      "case.  What is in use is left out: by\na job that has not ended, an "
      "export, a sample, a download."};
  return info;
}

void PruneCommand::DefineFlags(FlagSet* flags) {
  flags->AddInt("keep", 0, "N", 0, &keep_,
                "keep so many of each job, the newest; 1 when not given");
  flags->AddString("older-than", 0, "TIME", &older_than_,
                   "only those that are older: 12h, 7d; of any age when not "
                   "given");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "only of jobs of this project; of all when not given");
  flags->AddBool("all", 0, &all_,
                 "of everybody's jobs, for admins; of yours when not given");
  flags->AddBool("dry-run", 0, &dry_run_, "only list them");
  flags->AddBool("yes", 'y', &yes_, "delete without asking");
}

absl::Status PruneCommand::CheckFlags() {
  if (keep_ > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError("flag --keep: is too large");
  }
  request_.set_keep(static_cast<int32_t>(keep_));
  request_.set_project(project_);
  request_.set_everybody(all_);
  if (older_than_.empty()) return absl::OkStatus();
  const auto span = ParseTimeSpan("older-than", older_than_);
  if (!span.ok()) return span.status();
  request_.set_older_than_seconds(absl::ToInt64Seconds(*span));
  return absl::OkStatus();
}

grpc::Status PruneCommand::Find(Session* session, Checkpoints* found) {
  do {
    v1::ListOldCheckpointsResponse page;
    const grpc::Status status = CallPatiently(session, [&] {
      UnaryContext context(session->interrupt());
      return session->checkpoints().ListOldCheckpoints(context.get(), request_,
                                                       &page);
    });
    if (!status.ok()) return status;
    found->insert(found->end(), page.checkpoints().begin(),
                  page.checkpoints().end());
    request_.set_page_token(page.next_page_token());
  } while (!request_.page_token().empty());
  return grpc::Status::OK;
}

ExitCode PruneCommand::Delete(const std::string& job,
                              const Checkpoints& checkpoints, Session* session,
                              Checkpoints* gone) const {
  for (size_t first = 0; first < checkpoints.size(); first += kMaxSteps) {
    v1::DeleteCheckpointsRequest request;
    request.set_name(job);
    const size_t end = std::min(checkpoints.size(), first + kMaxSteps);
    for (size_t i = first; i < end; ++i) {
      request.add_steps(checkpoints[i].step());
    }
    v1::DeleteCheckpointsResponse response;
    const grpc::Status status = CallPatiently(session, [&] {
      // As long as the files take.
      UnaryContext context(session->interrupt(), absl::InfiniteDuration());
      return session->checkpoints().DeleteCheckpoints(context.get(), request,
                                                      &response);
    });
    if (!status.ok()) {
      return session->Fail("prune checkpoints of " + ShortName(job), status);
    }
    gone->insert(gone->end(), response.checkpoints().begin(),
                 response.checkpoints().end());
    session->err() << LeftText(response.left());
  }
  return ExitCode::kOk;
}

void PruneCommand::Show(const Checkpoints& checkpoints, const std::string& text,
                        Session* session) const {
  if (session->format() == OutputFormat::kTable) {
    session->out() << text;
  } else if (session->format() == OutputFormat::kJson) {
    v1::ListOldCheckpointsResponse all;
    all.mutable_checkpoints()->Assign(checkpoints.begin(), checkpoints.end());
    session->out() << JsonText(MessageJson(all), 2) << "\n";
  } else {
    for (const v1::Checkpoint& one : checkpoints) {
      session->out() << VisibleLine(one.job()) << "/checkpoints/" << one.step()
                     << "\n";
    }
  }
}

ExitCode PruneCommand::Run(const std::vector<std::string>&, Session* session) {
  Checkpoints found;
  const grpc::Status status = Find(session, &found);
  if (!status.ok()) return session->Fail("prune", status);
  if (found.empty()) session->err() << "There is nothing to delete.\n";
  if (dry_run_ || found.empty()) {
    Show(found, found.empty() ? "" : CheckpointTable(found), session);
    return ExitCode::kOk;
  }
  session->err() << CheckpointTable(found);
  const std::string what =
      absl::StrCat(CountText(static_cast<int64_t>(found.size()), "checkpoint"),
                   ", ", FormatBytes(BytesOf(found)));
  const ExitCode said = AskBeforeDeleting(
      "prune", absl::StrCat("Delete ", what, "?"), yes_, session);
  if (said != ExitCode::kOk) return said;
  std::map<std::string, Checkpoints> jobs;
  for (const v1::Checkpoint& one : found) jobs[one.job()].push_back(one);
  Checkpoints gone;
  ExitCode worst = ExitCode::kOk;
  for (const auto& [job, checkpoints] : jobs) {
    const ExitCode code = Delete(job, checkpoints, session, &gone);
    if (worst == ExitCode::kOk) worst = code;
    if (session->interrupt()->requested()) break;
  }
  Show(gone,
       absl::StrCat("Deleted ",
                    CountText(static_cast<int64_t>(gone.size()), "checkpoint"),
                    ", ", FormatBytes(BytesOf(gone)), "\n"),
       session);
  return worst;
}

}  // namespace

std::unique_ptr<Command> MakePruneCommand() {
  return std::make_unique<PruneCommand>();
}

}  // namespace roundhouse::client
