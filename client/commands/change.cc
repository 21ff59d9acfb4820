#include "client/commands/change.h"

#include <functional>
#include <ostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/output.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

// One of the calls that change a job, with the command's arguments.
using Call = std::function<grpc::Status(
    v1::FineTuningJobService::StubInterface&, grpc::ClientContext*,
    const std::vector<std::string>&, v1::FineTuningJob*)>;

class ChangeCommand : public Command {
 public:
  ChangeCommand(CommandInfo info, Call call)
      : info_(std::move(info)), call_(std::move(call)) {}

  const CommandInfo& info() const override { return info_; }
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  CommandInfo info_;
  Call call_;
};

ExitCode ChangeCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  v1::FineTuningJob job;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      call_(session->jobs(), context.get(), arguments, &job);
  if (!status.ok()) {
    return session->Fail(info_.name + " " + arguments[0], status);
  }
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << VisibleLine(ShortName(job.name())) << " "
                     << v1::JobState_Name(job.state())
                     << (ClassText(job).empty()
                             ? ""
                             : absl::StrCat(" (", ClassText(job), ")"))
                     << "\n";
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(JobJson(job), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(job.name()) << "\n";
      break;
  }
  return ExitCode::kOk;
}

class PauseCommand final : public ChangeCommand {
 public:
  explicit PauseCommand(CommandInfo info)
      : ChangeCommand(std::move(info),
                      [this](auto& jobs, auto* context, const auto& arguments,
                             auto* job) {
                        v1::PauseFineTuningJobRequest request;
                        request.set_name(arguments[0]);
                        request.set_give_back(give_back_);
                        return jobs.PauseFineTuningJob(context, request, job);
                      }) {}

  void DefineFlags(FlagSet* flags) override {
    flags->AddBool("give-back", 0, &give_back_,
                   "write a checkpoint now and give the memory back");
  }

 private:
  bool give_back_ = false;
};

class PriorityCommand final : public ChangeCommand {
 public:
  using ChangeCommand::ChangeCommand;

  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override {
    return ParsePriority(arguments[1]).status();
  }
};

CommandInfo Info(const std::string& name, const std::string& summary,
                 const std::string& details) {
  return CommandInfo{name, "JOB", summary, details, 1, 1};
}

}  // namespace

absl::StatusOr<v1::JobPriority> ParsePriority(const std::string& text) {
  std::vector<std::string> names;
  const auto& all = *v1::JobPriority_descriptor();
  for (int i = 0; i < all.value_count(); ++i) {
    const auto priority = static_cast<v1::JobPriority>(all.value(i)->number());
    if (priority == v1::JOB_PRIORITY_UNSPECIFIED) continue;
    names.push_back(absl::AsciiStrToLower(all.value(i)->name()));
    if (text == names.back()) return priority;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is none of ",
                                                 absl::StrJoin(names, ", "),
                                                 DidYouMean(text, names)));
}

std::unique_ptr<Command> MakePauseCommand() {
  return std::make_unique<PauseCommand>(Info(
      "pause", "stop a job and keep it for later",
      "Returns at once.  No slot of a running job begins any more, and it "
      "keeps its memory\nwhile no other job needs it; then, as one that still "
      "loads, it writes a checkpoint\nand gives it back."));
}

std::unique_ptr<Command> MakeResumeCommand() {
  return std::make_unique<ChangeCommand>(
      Info("resume", "queue a paused job again",
           "It goes on from its checkpoint, or where it was if it kept its "
           "memory."),
      [](auto& jobs, auto* context, const auto& arguments, auto* job) {
        v1::ResumeFineTuningJobRequest request;
        request.set_name(arguments[0]);
        return jobs.ResumeFineTuningJob(context, request, job);
      });
}

std::unique_ptr<Command> MakeFinishCommand() {
  return std::make_unique<ChangeCommand>(
      Info("finish", "end a running job now and keep what it has learned",
           "Returns at once; the step that runs is the last one.  As after any "
           "last step an\nevaluation, a checkpoint and the export follow, and "
           "the job has SUCCEEDED."),
      [](auto& jobs, auto* context, const auto& arguments, auto* job) {
        v1::FinishFineTuningJobRequest request;
        request.set_name(arguments[0]);
        return jobs.FinishFineTuningJob(context, request, job);
      });
}

std::unique_ptr<Command> MakeCancelCommand() {
  return std::make_unique<ChangeCommand>(
      Info("cancel", "end a job for good",
           "Returns at once.  Its checkpoints stay."),
      [](auto& jobs, auto* context, const auto& arguments, auto* job) {
        v1::CancelFineTuningJobRequest request;
        request.set_name(arguments[0]);
        return jobs.CancelFineTuningJob(context, request, job);
      });
}

std::unique_ptr<Command> MakePriorityCommand() {
  return std::make_unique<PriorityCommand>(
      CommandInfo{"priority", "JOB urgent|normal|backfill",
                  "let a job go before the others, as they do, or after them",
                  "It holds from the job's next slot on, and in the queue.  "
                  "Whose jobs may be urgent\nis a limit (urgent_jobs); those "
                  "of admins may.  A backfill job gets what the\nothers "
                  "leave, and gives way to them.",
                  2, 2},
      [](auto& jobs, auto* context, const auto& arguments, auto* job) {
        v1::UpdateFineTuningJobRequest request;
        request.set_name(arguments[0]);
        request.set_priority(*ParsePriority(arguments[1]));
        return jobs.UpdateFineTuningJob(context, request, job);
      });
}

}  // namespace roundhouse::client
