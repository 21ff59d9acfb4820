// What commands about things with names share: users, projects, tokens.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_NAMED_THINGS_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_NAMED_THINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/accounts/account_call.h"
#include "client/commands/command.h"

namespace roundhouse::client {

// What has names: "add", "show" and "remove" take one, "list" shows all.
class NamedThingsCommand : public Command {
 public:
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const final;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) final;

 protected:
  virtual ExitCode Add(const std::string& name, Session* session) const = 0;
  // `only` "": all of them.
  virtual ExitCode List(const std::string& only, Session* session) const = 0;
  virtual ExitCode Remove(const std::string& name, Session* session) const = 0;

  // All of `response`, or the one record that is asked for.  `table` prints
  // records for people; `missing` says that there is none.
  template <typename Response, typename Record>
  ExitCode ShowListed(const Response& response,
                      const google::protobuf::RepeatedPtrField<Record>& all,
                      std::string (*table)(const std::vector<Record>&),
                      const std::string& only, const std::string& missing,
                      Session* session) const {
    std::vector<Record> records;
    std::vector<std::string> names;
    for (const Record& record : all) {
      if (!only.empty() && record.name() != only) continue;
      records.push_back(record);
      names.push_back(record.name());
    }
    if (only.empty()) return Show(response, table(records), names, session);
    if (!records.empty()) {
      return Show(records[0], table(records), names, session);
    }
    return session->Fail(absl::StrCat(info().name, " show"),
                         grpc::Status(grpc::StatusCode::NOT_FOUND,
                                      absl::StrCat(missing, " ", only)));
  }

  // Verbs beside those four, with arguments of their own.
  virtual std::vector<std::string> OtherVerbs() const { return {}; }
  virtual absl::Status CheckOther(
      const std::vector<std::string>& arguments) const {
    return absl::OkStatus();
  }
  virtual ExitCode RunOther(const std::vector<std::string>& arguments,
                            Session* session) const {
    return ExitCode::kUsage;
  }

  // Whether the flags given are for this verb.
  virtual absl::Status CheckVerb(const std::string& verb) const {
    return absl::OkStatus();
  }
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_NAMED_THINGS_H_
