// What the hub did wrong, as an error for people.
#ifndef ROUNDHOUSE_SERVER_HUB_HUB_REFUSAL_H_
#define ROUNDHOUSE_SERVER_HUB_HUB_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// kFailedPrecondition: another try would bring the same.  Pure.
inline absl::Status Refused(absl::string_view what) {
  return absl::FailedPreconditionError(what);
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_HUB_REFUSAL_H_
