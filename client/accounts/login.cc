#include "client/accounts/login.h"

#include <grpcpp/support/status.h>

#include <algorithm>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status.h"
#include "base/token_text.h"
#include "base/visible_text.h"
#include "client/accounts/named_things.h"
#include "client/error_text.h"
#include "client/server_address.h"
#include "client/tables/account_output.h"
#include "client/tls/certificate.h"
#include "client/tls/logins.h"

namespace roundhouse::client {
namespace {

constexpr size_t kMaxTokenLine = 4096;

// Tells what went wrong before a server was asked anything.
ExitCode Refuse(const char* command, absl::string_view what, ExitCode code,
                Session* session) {
  session->err() << "roundhouse: " << command << ": "
                 << MessageText(std::string(what)) << "\n";
  return code;
}

ExitCode CodeOf(const absl::Status& status) {
  return absl::IsUnavailable(status) ? ExitCode::kUnavailable
                                     : ExitCode::kError;
}

class LoginCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  // Whether the certificate that the server shows may be trusted, and by which
  // fingerprint.  kPermissionDenied: it may not; kCancelled: he said no.
  absl::StatusOr<std::string> Trust(const ShownCertificate& shown,
                                    const std::string& server,
                                    const Login* before,
                                    Session* session) const;
  absl::StatusOr<std::string> ReadToken(Session* session) const;
  ExitCode Finish(const ServerAddress& address, Logins logins,
                  Session* session) const;

  std::string fingerprint_;
  bool yes_ = false;
};

const CommandInfo& LoginCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "login",
      "HOST:PORT",
      "use a server over the network from now on",
      "Shows the fingerprint of the server's certificate, which its log and "
      "its admin know,\nand remembers it; another one is refused from then on. "
      " Where an authority that this\nmachine trusts vouches for the "
      "certificate there is nothing to remember.\n\nThen it takes a token, "
      "from "
      "the terminal without showing it, or a line of standard\ninput.  On the "
      "server roundhouse token add makes one.\n\nServer, fingerprint and token "
      "go to the file logins in the config folder, which nobody\nelse may "
      "read.  For jobs of CI there are the variables ROUNDHOUSE_SERVER\n"
      "(tls:HOST:PORT), ROUNDHOUSE_FINGERPRINT and ROUNDHOUSE_TOKEN.",
      1,
      1};
  return info;
}

void LoginCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("fingerprint", 0, "SHA256:...", &fingerprint_,
                   "the certificate must be this one; nothing is asked");
  flags->AddBool("yes", 0, &yes_,
                 "remember whatever is shown the first time; nothing is asked");
}

absl::Status LoginCommand::CheckFlags() {
  if (fingerprint_.empty() || IsFingerprint(fingerprint_)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "flag --fingerprint: is SHA256: and 43 characters, as the server's log "
      "shows it");
}

absl::StatusOr<std::string> LoginCommand::Trust(const ShownCertificate& shown,
                                                const std::string& server,
                                                const Login* before,
                                                Session* session) const {
  if (!fingerprint_.empty()) {
    if (shown.fingerprint == fingerprint_) return fingerprint_;
    return absl::PermissionDeniedError(
        absl::StrCat(server,
                     " shows another certificate than --fingerprint "
                     "says; nothing was sent\n  shown: ",
                     shown.fingerprint));
  }
  const bool known = before != nullptr && !before->fingerprint.empty();
  if (known && before->fingerprint != shown.fingerprint) {
    return absl::PermissionDeniedError(absl::StrCat(
        "THE CERTIFICATE OF ", server,
        " HAS CHANGED.\nSomebody may be listening in.  Nothing was sent.\n"
        "remembered: ",
        before->fingerprint, "\nshown:      ", shown.fingerprint,
        "\nAsk the server's admin; its log shows the right one.  If this is "
        "it: roundhouse login ",
        server, " --fingerprint=", shown.fingerprint));
  }
  if (known) return shown.fingerprint;
  if (shown.vouched_for) return std::string();
  session->err() << "The certificate of " << server
                 << " is not one that this machine knows ("
                 << VisibleLine(shown.reason)
                 << ").\nIts fingerprint: " << shown.fingerprint << "\n"
                 << std::flush;
  if (yes_) return shown.fingerprint;
  const auto answer = session->environment().ask(
      "Does the server's log, or its admin, say the same (yes/no)? ",
      Typed::kShown);
  if (!answer.has_value()) {
    return absl::PermissionDeniedError(
        "nobody is here to ask; say which one is right with "
        "--fingerprint=SHA256:..., or --yes for this one");
  }
  if (absl::StripAsciiWhitespace(*answer) == "yes") return shown.fingerprint;
  return absl::CancelledError("not trusted; nothing was sent");
}

absl::StatusOr<std::string> LoginCommand::ReadToken(Session* session) const {
  Environment& environment = session->environment();
  std::string line;
  if (environment.in_is_terminal) {
    std::optional<std::string> typed =
        environment.ask("Token: ", Typed::kHidden);
    if (!typed.has_value()) {
      return absl::InvalidArgumentError("no token was given");
    }
    line = *std::move(typed);
  } else if (environment.in != nullptr) {
    for (char c = 0;
         line.size() < kMaxTokenLine && environment.in->get(c) && c != '\n';) {
      line += c;
    }
  }
  const std::string token(absl::StripAsciiWhitespace(line));
  if (IsTokenText(token)) return token;
  return absl::InvalidArgumentError(absl::StrCat(
      token.empty() ? "no token was given"
                    : "that is no token, or not all of it",
      ": it begins with ", kTokenPrefix, " and has ", kTokenTextBytes,
      " characters; roundhouse token add NAME makes one on the server"));
}

ExitCode LoginCommand::Finish(const ServerAddress& address, Logins logins,
                              Session* session) const {
  Connection connection(address);
  UnaryContext context(session->interrupt());
  v1::WhoAmIResponse caller;
  const grpc::Status status =
      connection.accounts().WhoAmI(context.get(), v1::WhoAmIRequest(), &caller);
  if (!status.ok()) {
    session->err() << ErrorText(absl::StrCat("login ", address.tls.server),
                                status, address);
    return CertificateRefused(status) ? ExitCode::kAuth
                                      : ExitCodeForStatus(status);
  }
  PutLogin({.server = address.tls.server,
            .fingerprint = address.tls.fingerprint,
            .token = address.tls.token},
           &logins);
  const absl::Status written =
      WriteLogins(LoginsPath(session->environment()), logins);
  if (!written.ok()) {
    return Refuse("login", written.message(), ExitCode::kError, session);
  }
  Show(caller,
       absl::StrCat("Logged in to ", VisibleLine(address.tls.server), ": ",
                    WhoAmIText(caller)),
       {address.tls.server}, session);
  const auto now = FindServer("", session->environment());
  if (now.ok() && now->target != address.target) {
    session->err() << "Commands still go to " << VisibleLine(now->target)
                   << ", which " << VisibleLine(now->source)
                   << " says; take it away there.\n";
  }
  return ExitCode::kOk;
}

ExitCode LoginCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  Environment& environment = session->environment();
  auto address = TlsServer(arguments[0], environment);
  if (!address.ok()) {
    return Refuse("login", address.status().message(), ExitCode::kUsage,
                  session);
  }
  const std::string path = LoginsPath(environment);
  if (path.empty()) {
    return Refuse("login", "neither HOME nor XDG_CONFIG_HOME is set",
                  ExitCode::kError, session);
  }
  const auto logins = ReadLogins(path);
  if (!logins.ok()) {
    return Refuse("login", logins.status().message(), ExitCode::kError,
                  session);
  }
  const auto server = ParseHostPort(address->tls.server);
  const auto shown = AskCertificate(*server, address->tls.roots);
  if (!shown.ok()) {
    return Refuse("login", shown.status().message(), CodeOf(shown.status()),
                  session);
  }
  const auto trusted = Trust(*shown, address->tls.server,
                             LoginOf(*logins, address->tls.server), session);
  if (!trusted.ok()) {
    return Refuse("login", trusted.status().message(),
                  absl::IsCancelled(trusted.status()) ? ExitCode::kCancelled
                                                      : ExitCode::kAuth,
                  session);
  }
  address->tls.fingerprint = *trusted;
  const auto token = ReadToken(session);
  if (!token.ok()) {
    return Refuse("login", token.status().message(), ExitCode::kAuth, session);
  }
  address->tls.token = *token;
  return Finish(*address, *logins, session);
}

class LogoutCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  bool forget_ = false;
};

const CommandInfo& LogoutCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "logout",
      "[HOST:PORT]",
      "forget the token of a server",
      "Without HOST:PORT, of the one that commands go to.  The token itself "
      "still works\nwherever else it is; roundhouse token remove ends it.",
      0,
      1};
  return info;
}

void LogoutCommand::DefineFlags(FlagSet* flags) {
  flags->AddBool("forget", 0, &forget_,
                 "the fingerprint of its certificate, too");
}

ExitCode LogoutCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  const std::string path = LoginsPath(session->environment());
  auto logins = path.empty() ? Logins() : ReadLogins(path);
  if (!logins.ok()) {
    return Refuse("logout", logins.status().message(), ExitCode::kError,
                  session);
  }
  std::string server;
  if (!arguments.empty()) {
    const auto address = TlsServer(arguments[0], session->environment());
    if (!address.ok()) {
      return Refuse("logout", address.status().message(), ExitCode::kUsage,
                    session);
    }
    server = address->tls.server;
  } else if (const Login* const current = CurrentLogin(*logins)) {
    server = current->server;
  }
  const auto found =
      std::find_if(logins->begin(), logins->end(),
                   [&](const Login& login) { return login.server == server; });
  if (found == logins->end()) {
    return Refuse("logout",
                  server.empty()
                      ? "you are logged in nowhere"
                      : absl::StrCat("you are not logged in to ", server),
                  ExitCode::kNotFound, session);
  }
  found->token = "";
  if (forget_ || found->fingerprint.empty()) logins->erase(found);
  const absl::Status written = WriteLogins(path, *logins);
  if (!written.ok()) {
    return Refuse("logout", written.message(), ExitCode::kError, session);
  }
  session->out() << "Logged out of " << VisibleLine(server) << ".\n";
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeLoginCommand() {
  return std::make_unique<LoginCommand>();
}

std::unique_ptr<Command> MakeLogoutCommand() {
  return std::make_unique<LogoutCommand>();
}

}  // namespace roundhouse::client
