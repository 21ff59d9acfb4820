// Following one job to its end, as submit --wait and watch do.
//
// Blocking; runs on the caller's thread.
#ifndef ROUNDHOUSE_CLIENT_FOLLOW_H_
#define ROUNDHOUSE_CLIENT_FOLLOW_H_

#include <cstdint>
#include <functional>
#include <string>

#include "client/session.h"

namespace roundhouse::client {

// Lines of its log that are shown when a job has failed.
inline constexpr int kFailedLogLines = 20;

using WatchCallback =
    std::function<void(const v1::WatchFineTuningJobsResponse&)>;

// Shows progress on `printer` until the job ends, Ctrl-C, or the server stays
// away; then says on err how it ended (with reason and the log's tail when it
// failed, unless the reason is all of it) or how to come back.  `on_message`
// gets every message with a job.
// `ended`, where not null, becomes the whole job when it has ended.
ExitCode FollowJob(Session* session, const std::string& name,
                   ProgressPrinter printer, const WatchCallback& on_message,
                   v1::FineTuningJob* ended);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_FOLLOW_H_
