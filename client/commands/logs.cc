#include "client/commands/logs.h"

#include <cstdint>
#include <limits>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

class LogsCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  ExitCode ShowReason(const std::string& name, Session* session) const;
  void Show(const std::string& text, Session* session) const;
  void ShowPiece(const std::string& bytes, Session* session);

  bool follow_ = false;
  int64_t tail_lines_ = 0;
  std::string begun_;  // a character that is not whole yet
};

const CommandInfo& LogsCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "logs",
      "JOB",
      "a job's log, and why it failed",
      "The log goes to standard output, the reason of a failure to standard "
      "error.\nWith -o json, one object a piece: {\"data\": \"...\"}.",
      1,
      1};
  return info;
}

void LogsCommand::DefineFlags(FlagSet* flags) {
  flags->AddBool("follow", 'f', &follow_, "go on until the job has ended");
  flags->AddInt("tail", 0, "N", 0, &tail_lines_,
                "show only the last N lines (and what follows); 0 is all");
}

absl::Status LogsCommand::CheckFlags() {
  return tail_lines_ <= std::numeric_limits<int32_t>::max()
             ? absl::OkStatus()
             : absl::InvalidArgumentError("flag --tail: too large");
}

void LogsCommand::Show(const std::string& text, Session* session) const {
  if (text.empty()) return;
  if (session->format() == OutputFormat::kJson) {
    nlohmann::ordered_json json;
    json["data"] = text;
    session->out() << JsonText(json, -1) << "\n";
  } else {
    session->out() << VisibleText(text);
  }
  session->out() << std::flush;
}

// The server cuts where it likes.
void LogsCommand::ShowPiece(const std::string& bytes, Session* session) {
  begun_ += bytes;
  const std::string rest =
      begun_.substr(begun_.size() - UnfinishedBytes(begun_));
  begun_.resize(begun_.size() - rest.size());
  Show(std::exchange(begun_, rest), session);
}

ExitCode LogsCommand::ShowReason(const std::string& name,
                                 Session* session) const {
  v1::GetFineTuningJobRequest request;
  request.set_name(name);
  v1::FineTuningJob job;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->jobs().GetFineTuningJob(context.get(), request, &job);
  if (!status.ok()) {
    return session->Fail("get " + name, status);
  }
  if (job.state() == v1::FAILED) {
    session->err() << FinalText(job);
  }
  return ExitCode::kOk;
}

ExitCode LogsCommand::Run(const std::vector<std::string>& arguments,
                          Session* session) {
  const std::string& name = arguments[0];
  v1::StreamFineTuningJobLogsRequest request;
  request.set_name(name);
  request.set_follow(follow_);
  request.set_tail_lines(static_cast<int32_t>(tail_lines_));
  ProgressPrinter printer = session->PlainPrinter(&session->err());
  const grpc::Status status =
      ReadLogs(&session->jobs(), request, session->Streams(&printer),
               [&](const std::string& bytes) { ShowPiece(bytes, session); });
  Show(begun_, session);
  if (status.ok()) {
    return ShowReason(name, session);
  }
  const ExitCode code = session->Fail("logs " + name, status);
  if (code == ExitCode::kDetached && follow_) {
    session->err() << "The job goes on.  Come back with: "
                   << session->CommandLine("logs -f " + name) << "\n";
  }
  return code;
}

}  // namespace

std::unique_ptr<Command> MakeLogsCommand() {
  return std::make_unique<LogsCommand>();
}

}  // namespace roundhouse::client
