// How commands ask roundhouse.v1.AccountService and show what it answers.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_CALL_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_CALL_H_

#include <grpcpp/grpcpp.h>

#include <ostream>
#include <string>
#include <vector>

#include "base/visible_text.h"
#include "client/session.h"
#include "client/tables/message_json.h"
#include "proto/roundhouse/v1/account.grpc.pb.h"

namespace roundhouse::client {

// A message, as the format has it.  `table` is printed for people.
template <typename Message>
ExitCode Show(const Message& message, const std::string& table,
              const std::vector<std::string>& names, Session* session) {
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << table;
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(message), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const std::string& name : names) {
        session->out() << VisibleLine(name) << "\n";
      }
      break;
  }
  return ExitCode::kOk;
}

template <typename Request, typename Response>
using Rpc = grpc::Status (v1::AccountService::StubInterface::*)(
    grpc::ClientContext*, const Request&, Response*);

// kOk: the response is there.  Else what went wrong was told.
template <typename Request, typename Response>
ExitCode Ask(Rpc<Request, Response> rpc, const Request& request,
             const std::string& doing, Session* session, Response* response) {
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      (session->accounts().*rpc)(context.get(), request, response);
  return status.ok() ? ExitCode::kOk : session->Fail(doing, status);
}

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_CALL_H_
