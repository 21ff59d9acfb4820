// How a process that the daemon started says, by its exit status, that another
// start would end the same way.
#ifndef ROUNDHOUSE_BASE_WIRE_EXIT_STATUS_H_
#define ROUNDHOUSE_BASE_WIRE_EXIT_STATUS_H_

namespace roundhouse::wire {

// This machine or this build lacks what was asked for: no driver, no device, no
// CUDA in the program, another build's arena.  The last line on stderr says
// which.
inline constexpr int kUnableExit = 2;

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_EXIT_STATUS_H_
