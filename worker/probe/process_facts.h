// What the kernel tells of a process by its id.
//
// Ids are those of this process' namespace.  Thread-safe.
#ifndef ROUNDHOUSE_WORKER_PROBE_PROCESS_FACTS_H_
#define ROUNDHOUSE_WORKER_PROBE_PROCESS_FACTS_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace roundhouse::worker {

struct ProcessFacts {
  pid_t parent = 0;          // 0: not known, or none
  std::optional<uid_t> uid;  // whose it is
  std::string name;          // any bytes; "": not known
};

// Nullopt: there is no such process.  Of one that the system hides (hidepid,
// ProtectProc) nothing is known but that it is there.
std::optional<ProcessFacts> FactsOf(pid_t pid);

// Whether `ancestor` is the process, its parent, or one further up.
bool DescendsFrom(pid_t pid, pid_t ancestor);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROBE_PROCESS_FACTS_H_
