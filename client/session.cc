#include "client/session.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/interrupt.h"

namespace roundhouse::client {

Session::Session(Environment* environment, OutputFormat format,
                 const ServerAddress& address)
    : environment_(environment), format_(format), address_(address) {}

Connection& Session::connection() {
  if (connection_ == nullptr) {
    connection_ = std::make_unique<Connection>(address_);
  }
  return *connection_;
}

v1::FineTuningJobService::StubInterface& Session::jobs() {
  return connection().jobs();
}

v1::DatasetService::StubInterface& Session::datasets() {
  return connection().datasets();
}

v1::CheckpointService::StubInterface& Session::checkpoints() {
  return connection().checkpoints();
}

v1::AccountService::StubInterface& Session::accounts() {
  return connection().accounts();
}

v1::UploadService::StubInterface& Session::uploads() {
  return connection().uploads();
}

v1::ModelService::StubInterface& Session::models() {
  return connection().models();
}

v1::PlanService::StubInterface& Session::plans() {
  return connection().plans();
}

v1::SystemService::StubInterface& Session::system() {
  return connection().system();
}

ExitCode Session::Fail(const std::string& doing, const grpc::Status& status) {
  if (interrupt()->requested()) {
    err() << "roundhouse: " << VisibleLine(doing) << ": interrupted\n";
    return ExitCode::kDetached;
  }
  err() << ErrorText(doing, status, address_);
  return CertificateRefused(status) ? ExitCode::kAuth
                                    : ExitCodeForStatus(status);
}

std::string Session::CommandLine(const std::string& rest) const {
  return VisibleLine(
      address_.source == "--server"
          ? absl::StrCat("roundhouse --server ", address_.target, " ", rest)
          : absl::StrCat("roundhouse ", rest));
}

ProgressPrinter Session::Printer(std::ostream* stream, bool is_terminal) {
  ProgressPrinter::Options options;
  options.stream = stream;
  options.redraw = is_terminal;
  options.color = is_terminal && environment_->ColorsAllowed();
  options.columns = environment_->columns;
  return ProgressPrinter(options);
}

ProgressPrinter Session::PlainPrinter(std::ostream* stream) {
  ProgressPrinter::Options options;
  options.stream = stream;
  return ProgressPrinter(options);
}

StreamOptions Session::Streams(ProgressPrinter* printer) {
  StreamOptions options;
  options.retry = environment_->stream_retry;
  options.interrupt = interrupt();
  options.on_broken = [this, printer, said = std::string()](
                          const grpc::Status& status, bool moved) mutable {
    const std::string text = BrokenText(status, address_);
    if (!moved && text == said) return;
    said = text;
    printer->Finish();
    err() << text;
  };
  return options;
}

}  // namespace roundhouse::client
