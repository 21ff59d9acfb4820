// A failed call in words: the server's message, the words it complains about
// and, when there is no server, where it was looked for.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_ERROR_TEXT_H_
#define ROUNDHOUSE_CLIENT_ERROR_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "client/server_address.h"

namespace roundhouse::client {

// One or more lines, each with its newline.  The first starts with `doing`
// ("submit job.yaml"), unless the message itself starts with the file that
// `doing` names; a field of the API that it starts with becomes the word of the
// command line ("flag --model: ...").  The code is named where the message does
// not say it all.  Then comes one line for each violation of
// google.rpc.BadRequest, PreconditionFailure, QuotaFailure and ResourceInfo
// that the message doesn't already spell out.  Details that can't be decoded
// are left out.  REQUIRES: !status.ok().
std::string ErrorText(const std::string& doing, const grpc::Status& status,
                      const ServerAddress& address);

// What the check of a remembered certificate says of another one, before its
// fingerprint.
inline constexpr char kOtherCertificate[] =
    "the certificate is not the remembered one but ";
// Whether the server was refused for its certificate: trying again is no use.
bool CertificateRefused(const grpc::Status& status);
// Whether the connection was cut or the server went away: what was under way
// may be begun again.
bool BrokeOnTheWay(const grpc::Status& status);

// Why a stream that will be tried again broke, a line: nobody answers, or the
// connection that there was is gone.
std::string BrokenText(const grpc::Status& status,
                       const ServerAddress& address);

// A message of somebody else's after our own words (base/visible_text.h).  Its
// further lines are indented, so that none looks like one of ours.
std::string MessageText(const std::string& message);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ERROR_TEXT_H_
