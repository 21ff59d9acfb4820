// A whole upload: begun or gone on with, sent, checked, and begun again where
// it stopped when the connection or the server went away.
//
// Blocking; run on the caller's thread; ends on Ctrl-C with CANCELLED.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_UPLOAD_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_UPLOAD_H_

#include <grpcpp/support/status.h>

#include <string>

#include "client/session.h"
#include "client/transfer/local_files.h"
#include "proto/roundhouse/v1/upload.grpc.pb.h"

namespace roundhouse::client {

// Times that a file may come again because it was not what its hash said.
inline constexpr int kMaxUploadRepeats = 3;

struct UploadWish {
  v1::UploadKind kind = v1::UPLOAD_KIND_DATASET;
  std::string name;
  std::string project;  // "": the server's choice
};

// The name for what lies at `path` when none is given; "" where it has none.
std::string NameOfPath(const std::string& path, bool is_folder);

// The same for what is there now: other contents have another name.
// REQUIRES: hashed.
std::string NameOfContents(const std::string& path, const LocalFiles& files);

// HashLocalFiles; progress goes to the session's err, as below.
grpc::Status HashFiles(LocalFiles* files, Session* session);
// Uploads `files`.  OK: `upload` is the finished version.  REQUIRES: hashed.
grpc::Status Upload(const UploadWish& wish, const LocalFiles& files,
                    Session* session, v1::Upload* upload);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_UPLOAD_H_
