// What a running command works with: the environment, the output format, the
// server, and the ways to report.
//
// Thread-compatible; lives as long as the command runs.
#ifndef ROUNDHOUSE_CLIENT_SESSION_H_
#define ROUNDHOUSE_CLIENT_SESSION_H_

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/environment.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/progress.h"
#include "client/streams.h"

namespace roundhouse::client {

class Session {
 public:
  // `environment` is borrowed.  Nothing is opened before the first stub.
  Session(Environment* environment, OutputFormat format,
          const ServerAddress& address);

  Environment& environment() { return *environment_; }
  std::ostream& out() { return *environment_->out; }
  std::ostream& err() { return *environment_->err; }
  OutputFormat format() const { return format_; }
  const ServerAddress& address() const { return address_; }
  v1::FineTuningJobService::StubInterface& jobs();
  v1::DatasetService::StubInterface& datasets();
  v1::CheckpointService::StubInterface& checkpoints();
  v1::ModelService::StubInterface& models();
  v1::PlanService::StubInterface& plans();
  v1::SystemService::StubInterface& system();
  v1::AccountService::StubInterface& accounts();
  v1::UploadService::StubInterface& uploads();
  Interrupt* interrupt() { return environment_->interrupt; }

  // Writes what went wrong to err; the process's exit code.
  ExitCode Fail(const std::string& doing, const grpc::Status& status);
  // A command line to type ("roundhouse watch a1"), with --server where this
  // one was given by it.
  std::string CommandLine(const std::string& rest) const;
  // A redrawn line where `stream` is a terminal.
  ProgressPrinter Printer(std::ostream* stream, bool is_terminal);
  // Plain lines, whatever `stream` is.
  ProgressPrinter PlainPrinter(std::ostream* stream);
  // Why a stream is opened again is said once for each reason, until something
  // new has come.
  StreamOptions Streams(ProgressPrinter* printer);

 private:
  Connection& connection();

  Environment* environment_;
  OutputFormat format_;
  ServerAddress address_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_SESSION_H_
