#include "client/commands/list.h"

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

constexpr int64_t kMaxPageSize = 500;

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int i = v1::JobState_MIN; i <= v1::JobState_MAX; ++i) {
    if (!v1::JobState_IsValid(i) || i == v1::JOB_STATE_UNSPECIFIED) continue;
    names.push_back(
        absl::AsciiStrToLower(v1::JobState_Name(static_cast<v1::JobState>(i))));
  }
  return names;
}

class ListCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status ReadPages(Session* session);
  void Show(Session* session) const;

  std::string state_names_;
  int64_t limit_ = 50;
  v1::ListFineTuningJobsRequest request_;
  std::vector<v1::FineTuningJob> jobs_;
  bool has_more_ = false;
};

const CommandInfo& ListCommand::info() const {
  static const CommandInfo& info =
      *new CommandInfo{"list", "", "the jobs, newest first", ""};
  return info;
}

void ListCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("state", 0, "STATE[,STATE]", &state_names_,
                   "show only jobs in these states, such as running,queued");
  flags->AddInt("limit", 0, "N", 0, &limit_,
                "show at most so many jobs, 50 when not given; 0 is all");
}

absl::Status ListCommand::CheckFlags() {
  for (absl::string_view name :
       absl::StrSplit(state_names_, ',', absl::SkipEmpty())) {
    v1::JobState state;
    if (!v1::JobState_Parse(absl::AsciiStrToUpper(name), &state) ||
        state == v1::JOB_STATE_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --state: \"", name, "\" is no state of a job",
                       DidYouMean(absl::AsciiStrToLower(name), StateNames())));
    }
    request_.add_states(state);
  }
  return absl::OkStatus();
}

grpc::Status ListCommand::ReadPages(Session* session) {
  for (;;) {
    const int64_t left = limit_ - static_cast<int64_t>(jobs_.size());
    request_.set_page_size(static_cast<int32_t>(
        limit_ == 0 ? kMaxPageSize : std::min(left, kMaxPageSize)));
    v1::ListFineTuningJobsResponse page;
    UnaryContext context(session->interrupt());
    const grpc::Status status =
        session->jobs().ListFineTuningJobs(context.get(), request_, &page);
    if (!status.ok()) {
      return status;
    }
    jobs_.insert(jobs_.end(), page.jobs().begin(), page.jobs().end());
    has_more_ = !page.next_page_token().empty();
    if (!has_more_ ||
        (limit_ > 0 && static_cast<int64_t>(jobs_.size()) >= limit_)) {
      return grpc::Status::OK;
    }
    request_.set_page_token(page.next_page_token());
  }
}

void ListCommand::Show(Session* session) const {
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << JobTable(jobs_, session->environment().now());
      break;
    case OutputFormat::kName:
      for (const v1::FineTuningJob& job : jobs_) {
        session->out() << VisibleLine(job.name()) << "\n";
      }
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json json;
      json["jobs"] = nlohmann::ordered_json::array();
      for (const v1::FineTuningJob& job : jobs_) {
        json["jobs"].push_back(BriefJobJson(job));
      }
      session->out() << JsonText(json, 2) << "\n";
      break;
    }
  }
  if (has_more_) {
    session->err() << "There are more; --limit=0 shows all.\n";
  }
}

ExitCode ListCommand::Run(const std::vector<std::string>&, Session* session) {
  const grpc::Status status = ReadPages(session);
  if (!status.ok()) {
    return session->Fail("list", status);
  }
  Show(session);
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeListCommand() {
  return std::make_unique<ListCommand>();
}

}  // namespace roundhouse::client
