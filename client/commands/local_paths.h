// Files of this machine that a job file names: found, uploaded, and named in
// the request.  For submit.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_LOCAL_PATHS_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_LOCAL_PATHS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "client/session.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

// Uploads what is a file or folder here, looked up where the command runs, and
// says so in `request->uploaded`.  Each is shown before it is sent.  Errors of
// the files, or of the server; FAILED_PRECONDITION, and nothing is sent, where
// the server asks for a path that does not stand in the job file's text.
grpc::Status UploadLocalPaths(v1::CreateFineTuningJobRequest* request,
                              Session* session);

// What to say to a refusal that is about a path which is a file or folder here;
// "" where it is about none.
std::string LocalPathHint(const v1::CreateFineTuningJobRequest& request,
                          const grpc::Status& refusal, Session* session);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_LOCAL_PATHS_H_
