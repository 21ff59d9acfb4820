// The token that the daemon shows to the hub, from a file (--hub-token-file).
#ifndef ROUNDHOUSE_SERVER_HUB_HUB_TOKEN_H_
#define ROUNDHOUSE_SERVER_HUB_HUB_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace roundhouse {

// kInvalidArgument, without a word of what is in it: it can't be read, is no
// file, others than the daemon's user may read it, or it has no single word of
// printable ASCII.  Blocking; thread-safe.
absl::StatusOr<std::string> ReadHubToken(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_HUB_TOKEN_H_
