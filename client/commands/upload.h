// roundhouse upload, and what `dataset` and `model` do with uploads.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_UPLOAD_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_UPLOAD_H_

#include <memory>
#include <string>

#include "client/commands/command.h"
#include "proto/roundhouse/v1/upload.pb.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeUploadCommand();

// Which uploads a command is about.
struct UploadQuestion {
  v1::UploadKind kind = v1::UPLOAD_KIND_DATASET;
  std::string project;  // "": all that the user has a role in
  std::string name;     // "dates" or "dates@2"; "": all
};

// Lists those that are meant.  UNIMPLEMENTED: the server is of before uploads.
grpc::Status FindUploads(const UploadQuestion& question, Session* session,
                         v1::ListUploadsResponse* response);
// "dates" of "dataset:dates", or of "dates".
std::string WithoutKind(const std::string& name, v1::UploadKind kind);

// "dataset list" and so on; an error is told.
ExitCode ListUploads(const UploadQuestion& question, Session* session);
// The newest version, where the name says none.
ExitCode ShowUpload(const UploadQuestion& question, Session* session);
// All versions, where the name says none.
ExitCode DeleteUploads(const UploadQuestion& question, Session* session);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_UPLOAD_H_
