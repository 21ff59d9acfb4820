// roundhouse pause, resume, finish, cancel and priority: one request that
// changes a job.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakePauseCommand();
std::unique_ptr<Command> MakeResumeCommand();
std::unique_ptr<Command> MakeFinishCommand();
std::unique_ptr<Command> MakeCancelCommand();
std::unique_ptr<Command> MakePriorityCommand();

// As it is written in job files; kInvalidArgument.
absl::StatusOr<v1::JobPriority> ParsePriority(const std::string& text);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_
