#include "client/commands/du.h"

#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "client/patient_call.h"
#include "client/tables/disk_output.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

constexpr std::pair<const char*, DiskView> kViews[] = {
    {"kind", DiskView::kKind},
    {"user", DiskView::kUser},
    {"project", DiskView::kProject},
    {"job", DiskView::kJob}};

class DuCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  std::string by_ = "kind";
  std::string project_;
  DiskView view_ = DiskView::kKind;
};

const CommandInfo& DuCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "du", "", "what lies on the server's disk, and for whom",
      "Shows what you see of jobs, uploads and exports, and what is the "
      "server's own.  A file\nthat several share counts once in all.  "
      "roundhouse limit list has what counts to limits;\nroundhouse prune and "
      "delete make room."};
  return info;
}

void DuCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("by", 0, "WHAT", &by_,
                   "kind (when not given), user, project or job");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "only what is of this project; of all when not given");
}

absl::Status DuCommand::CheckFlags() {
  std::vector<std::string> names;
  for (const auto& [name, view] : kViews) {
    names.push_back(name);
    if (by_ != name) continue;
    view_ = view;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("flag --by: \"", by_, "\" is none of ",
                   absl::StrJoin(names, ", "), DidYouMean(by_, names)));
}

ExitCode DuCommand::Run(const std::vector<std::string>&, Session* session) {
  if (session->format() == OutputFormat::kName) {
    session->err() << "roundhouse: du: its output is table or json\n";
    return ExitCode::kUsage;
  }
  v1::GetDiskUsageRequest request;
  request.set_project(project_);
  v1::GetDiskUsageResponse all;
  do {
    v1::GetDiskUsageResponse page;
    const grpc::Status status = CallPatiently(session, [&] {
      UnaryContext context(session->interrupt());
      return session->system().GetDiskUsage(context.get(), request, &page);
    });
    if (!status.ok()) return session->Fail("du", status);
    request.set_page_token(page.next_page_token());
    all.MergeFrom(page);
  } while (!request.page_token().empty());
  all.clear_next_page_token();
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText(MessageJson(all), 2) << "\n";
    return ExitCode::kOk;
  }
  session->out() << DiskUsageTable({all.parts().begin(), all.parts().end()},
                                   view_)
                 << DiskFreeText(all);
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDuCommand() {
  return std::make_unique<DuCommand>();
}

}  // namespace roundhouse::client
