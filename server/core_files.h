// Keeps what is in this process' memory, tokens and keys among it, out of files
// and of other processes.
#ifndef ROUNDHOUSE_SERVER_CORE_FILES_H_
#define ROUNDHOUSE_SERVER_CORE_FILES_H_

namespace roundhouse {

// A crash leaves no core file, and no other process of the daemon's user reads
// this one's memory.  Programs that it starts inherit the first alone.  What
// the system refuses is a warning in the log.
void LeaveNoCoreFiles();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_CORE_FILES_H_
