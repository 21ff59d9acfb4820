// How users, projects, limits, usage and the caller look on a terminal.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_ACCOUNT_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_ACCOUNT_OUTPUT_H_

#include <string>
#include <vector>

#include "proto/roundhouse/v1/account.pb.h"

namespace roundhouse::client {

std::string UserTable(const std::vector<v1::User>& users);
std::string TokenTable(const std::vector<v1::Token>& tokens);
std::string ProjectTable(const std::vector<v1::Project>& projects);
std::string LimitTable(const std::vector<v1::Limit>& limits);
// With a last line of all of them together.
std::string UsageTable(const v1::GetUsageResponse& usage, v1::UsageSubject by);
// A line of who it is, a line of what he may.
std::string WhoAmIText(const v1::WhoAmIResponse& caller);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_ACCOUNT_OUTPUT_H_
