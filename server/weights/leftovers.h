// What is left under the state directory by saves, preparations and exports
// that were cut short: by a kill, or by a disk that failed.
//
// Only names that the daemon gives are touched, and no link is followed.  Who
// runs meanwhile has directories of these names: a sweep is for a daemon that
// has just started, or for a job that is over.
//
// Blocking file access; thread-safe.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_LEFTOVERS_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_LEFTOVERS_H_

#include <functional>
#include <string>

namespace roundhouse {

// Unfinished checkpoints and temporary files of one job, and of all.  What
// can't be removed is logged.
void SweepJobDirectory(const std::string& directory);
void SweepJobDirectories(const std::string& jobs);

// Unfinished outputs.  Earlier daemons made the output NAME as tmp-NAME, which
// may be an output's own name: such a one goes only if `is_job` knows a job by
// NAME and none by tmp-NAME, and what is there was not finished.
void SweepOutputs(const std::string& outputs,
                  const std::function<bool(const std::string& name)>& is_job);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_LEFTOVERS_H_
