// Named points at which a test can have a process kill itself, or its device
// break.
//
// Every process of Roundhouse may die at any instruction
// (docs/design/daemon.md).  Random kills seldom hit the narrow windows, so the
// windows are named:
//
//   KillPoint("host.chunk.ready");
//
// A process started with the test-only flag --kill-at=host.chunk.ready:17
// raises SIGKILL against itself the 17th time it gets there.  At a fault point
//
//   if (FaultPoint("slot.fault")) RETURN_IF_ERROR(stream.BreakDevice());
//
// it goes on, and what is to break is the caller's.  Without the flag a point
// costs one relaxed load.  Thread-safe.
#ifndef ROUNDHOUSE_BASE_KILL_POINT_H_
#define ROUNDHOUSE_BASE_KILL_POINT_H_

#include <string>

#include "absl/status/status.h"

namespace roundhouse {

void KillPoint(const char* name);

// True at the armed pass, once.
bool FaultPoint(const char* name);

// Arms one point: "NAME:COUNT", COUNT >= 1.  Call before threads start.  An
// empty text arms nothing; a malformed one is INVALID_ARGUMENT.
absl::Status ArmKillPoint(const std::string& text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_KILL_POINT_H_
