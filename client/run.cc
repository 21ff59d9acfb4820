#include "client/run.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "base/text_width.h"
#include "base/version.h"
#include "client/accounts/account.h"
#include "client/accounts/audit.h"
#include "client/accounts/limit.h"
#include "client/accounts/login.h"
#include "client/accounts/token.h"
#include "client/accounts/usage.h"
#include "client/commands/change.h"
#include "client/commands/dataset.h"
#include "client/commands/delete.h"
#include "client/commands/device.h"
#include "client/commands/doctor.h"
#include "client/commands/download.h"
#include "client/commands/du.h"
#include "client/commands/export.h"
#include "client/commands/get.h"
#include "client/commands/job_template.h"
#include "client/commands/list.h"
#include "client/commands/logs.h"
#include "client/commands/model.h"
#include "client/commands/plan.h"
#include "client/commands/prune.h"
#include "client/commands/sample.h"
#include "client/commands/submit.h"
#include "client/commands/top.h"
#include "client/commands/trace.h"
#include "client/commands/upload.h"
#include "client/commands/watch.h"
#include "client/commands/why.h"
#include "client/error_text.h"

namespace roundhouse::client {
namespace {

constexpr size_t kHelpColumns = 80;

// Every command has them; they may also stand before its name.
struct GlobalFlags {
  std::string server;
  std::string output = "table";
  bool help = false;
  bool version = false;
};

using Factory = std::unique_ptr<Command> (*)();
constexpr Factory kFactories[] = {
    MakeSubmitCommand,   MakeListCommand,     MakeGetCommand,
    MakeWatchCommand,    MakeLogsCommand,     MakePauseCommand,
    MakeResumeCommand,   MakeFinishCommand,   MakeCancelCommand,
    MakeDatasetCommand,  MakeModelCommand,    MakeSampleCommand,
    MakeExportCommand,   MakePlanCommand,     MakeDeviceCommand,
    MakeTopCommand,      MakeTraceCommand,    MakeJobTemplateCommand,
    MakeUserCommand,     MakeProjectCommand,  MakeWhoAmICommand,
    MakeAuditCommand,    MakeLimitCommand,    MakeDoctorCommand,
    MakeUploadCommand,   MakeDownloadCommand, MakeDuCommand,
    MakePruneCommand,    MakeDeleteCommand,   MakeTokenCommand,
    MakeLoginCommand,    MakeLogoutCommand,   MakeUsageCommand,
    MakePriorityCommand, MakeWhyCommand};

void DefineGlobalFlags(GlobalFlags* global, FlagSet* flags) {
  flags->AddString("server", 0, "ADDRESS", &global->server,
                   "the server: unix:PATH or tls:HOST:PORT");
  // A command may have an output of its own; -o is always the format.
  const char* const format = flags->Has("output") ? "format" : "output";
  flags->AddString(format, 'o', "FORMAT", &global->output,
                   "how to print: table, json or name");
  flags->AddBool("help", 'h', &global->help, "print this text");
}

constexpr char kNotes[] =
    R"(The server is looked up in --server, the variable ROUNDHOUSE_SERVER, key
"server" of the file roundhouse/config in the XDG config folder (~/.config), the
last roundhouse login, "server" of /etc/roundhouse/client.conf, and is else the
socket roundhouse/roundhoused.sock in XDG_RUNTIME_DIR, or without
that variable /tmp/roundhouse-UID/roundhoused.sock.

Data goes to standard output, everything else to standard error.  NO_COLOR turns
colours off.

Exit codes: 0 ok, 1 error, 2 usage, 3 the job failed, 4 not allowed, 5 not
found, 6 not possible in this state, 7 over a limit, 8 server unavailable,
9 cancelled, 130 left by Ctrl-C.
)";

std::unique_ptr<Command> MakeCommand(const std::string& name) {
  for (const Factory& factory : kFactories) {
    std::unique_ptr<Command> command = factory();
    if (command->info().name == name) {
      return command;
    }
  }
  return nullptr;
}

// What other tools call it.
constexpr std::pair<const char*, const char*> kOtherWords[] = {
    {"create", "submit"}, {"df", "du"},
    {"describe", "get"},  {"gpu", "device"},
    {"gpus", "device"},   {"info", "get"},
    {"jobs", "list"},     {"kill", "cancel"},
    {"ls", "list"},       {"nodes", "device"},
    {"ps", "list"},       {"preview", "dataset preview"},
    {"rm", "delete"},     {"run", "submit"},
    {"show", "get"},      {"stats", "get"},
    {"status", "get"},    {"stop", "cancel"},
    {"train", "submit"},  {"validate", "dataset validate"}};

absl::Status UnknownCommand(const std::string& name) {
  const std::string text = absl::StrCat("unknown command \"", name, "\"");
  for (const auto& [word, command] : kOtherWords) {
    if (name != word) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(text, "; did you mean ", command, "?"));
  }
  std::vector<std::string> names = {"help"};
  for (const Factory& factory : kFactories) {
    names.push_back(factory()->info().name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(text, DidYouMean(name, names)));
}

std::string ClientHelp(const FlagSet& flags) {
  std::string text =
      "roundhouse: fine-tuning jobs on a Roundhouse server\n\n"
      "Usage: roundhouse [flags] COMMAND [flags]\n\nCommands:\n";
  for (const Factory& factory : kFactories) {
    const CommandInfo info = factory()->info();
    absl::StrAppend(&text, "  ", info.name,
                    std::string(14 - info.name.size(), ' '), info.summary,
                    "\n");
  }
  absl::StrAppend(&text,
                  "\nroundhouse COMMAND --help, or help COMMAND, says "
                  "more.\n\nFlags:\n",
                  flags.Help(), "\n", kNotes);
  return text;
}

std::string CommandHelp(const CommandInfo& info, const FlagSet& flags) {
  std::string text = absl::StrCat("roundhouse ", info.name, ": ", info.summary,
                                  "\n\nUsage: roundhouse ", info.name,
                                  info.arguments.empty() ? "" : " ",
                                  info.arguments, " [flags]\n");
  for (absl::string_view paragraph :
       absl::StrSplit(info.details, "\n\n", absl::SkipEmpty())) {
    absl::StrAppend(
        &text, "\n",
        absl::StrJoin(WrapText(std::string(paragraph), kHelpColumns), "\n"),
        "\n");
  }
  absl::StrAppend(&text, "\nFlags:\n", flags.Help());
  return text;
}

ExitCode UsageError(const absl::Status& status, const std::string& command,
                    Environment* environment) {
  *environment->err << "roundhouse: " << command
                    << (command.empty() ? "" : ": ")
                    << MessageText(std::string(status.message()))
                    << "\nSee: roundhouse " << command
                    << (command.empty() ? "" : " ") << "--help\n";
  return ExitCode::kUsage;
}

absl::Status CheckArguments(const CommandInfo& info,
                            const std::vector<std::string>& arguments) {
  if (arguments.size() < info.fewest_arguments) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.arguments, " is missing"));
  }
  if (arguments.size() > info.most_arguments) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", arguments[info.most_arguments], "\""));
  }
  if (std::find(arguments.begin(), arguments.end(), "") != arguments.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.arguments, " is empty"));
  }
  return absl::OkStatus();
}

ExitCode RunCommand(Command* command, const std::vector<std::string>& args,
                    GlobalFlags global, Environment* environment) {
  FlagSet flags;
  command->DefineFlags(&flags);
  DefineGlobalFlags(&global, &flags);
  const CommandInfo& info = command->info();
  const absl::StatusOr<std::vector<std::string>> arguments = flags.Parse(args);
  if (arguments.ok() && global.help) {
    *environment->out << CommandHelp(info, flags);
    return ExitCode::kOk;
  }
  absl::Status status = arguments.status();
  if (status.ok()) {
    status = CheckArguments(info, *arguments);
  }
  if (status.ok()) {
    status = command->CheckFlags();
  }
  if (status.ok()) {
    status = command->CheckArguments(*arguments);
  }
  const absl::StatusOr<OutputFormat> format = ParseOutputFormat(global.output);
  if (status.ok()) {
    status = format.status();
  }
  const absl::StatusOr<ServerAddress> address =
      FindServer(global.server, *environment);
  if (status.ok()) {
    status = address.status();
  }
  if (!status.ok()) {
    return UsageError(status, info.name, environment);
  }
  Session session(environment, *format, *address);
  return command->Run(*arguments, &session);
}

ExitCode Dispatch(std::vector<std::string> args, Environment* environment) {
  GlobalFlags global;
  FlagSet flags;
  DefineGlobalFlags(&global, &flags);
  flags.AddBool("version", 0, &global.version, "print the version");
  absl::StatusOr<std::vector<std::string>> rest =
      flags.Parse(args, FlagSet::Order::kFlagsFirst);
  if (!rest.ok()) {
    return UsageError(rest.status(), "", environment);
  }
  if (global.version) {
    *environment->out << "roundhouse " << kVersion << "\n";
    return ExitCode::kOk;
  }
  if (!rest->empty() && rest->front() == "help") {
    // Asks as --help does, before a command or alone.
    rest->front() = "--help";
    return Dispatch(*std::move(rest), environment);
  }
  if (rest->empty()) {
    (global.help ? *environment->out : *environment->err) << ClientHelp(flags);
    return global.help ? ExitCode::kOk : ExitCode::kUsage;
  }
  const std::unique_ptr<Command> command = MakeCommand(rest->front());
  if (command == nullptr) {
    return UsageError(UnknownCommand(rest->front()), "", environment);
  }
  return RunCommand(command.get(), {rest->begin() + 1, rest->end()}, global,
                    environment);
}

}  // namespace

ExitCode RunClient(const std::vector<std::string>& args,
                   Environment* environment) {
  const ExitCode code = Dispatch(args, environment);
  environment->out->flush();
  if (!environment->out->good() && code == ExitCode::kOk) {
    *environment->err << "roundhouse: standard output can't be written\n";
    return ExitCode::kError;
  }
  return code;
}

}  // namespace roundhouse::client
