// The files of what a job made, into a directory of this machine, which is
// there whole or not at all.
//
//   DIR.part/                 what has come over, file by file
//   DIR.part/.roundhouse      which files they are, so that the same download
//                             goes on with them and another begins anew
//
// Blocking; run on the caller's thread; ends on Ctrl-C with CANCELLED.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_DOWNLOAD_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_DOWNLOAD_H_

#include <grpcpp/support/status.h>

#include <string>

#include "client/session.h"
#include "client/transfer/arriving_files.h"

namespace roundhouse::client {

struct DownloadWish {
  std::string source;     // as ListOutputFilesRequest has it
  std::string directory;  // to be made
  WhatIsThere there = WhatIsThere::kStays;
};

// OK: `directory` has all files, and their hashes are the server's.
// ALREADY_EXISTS: it is there, and is not to be replaced.
grpc::Status Download(const DownloadWish& wish, Session* session);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_DOWNLOAD_H_
