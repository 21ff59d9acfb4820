// A child process of the benchmark's: started, awaited, killed with its owner.
#ifndef ROUNDHOUSE_TESTS_BENCH_PROCESS_H_
#define ROUNDHOUSE_TESTS_BENCH_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::bench {

class Process {
 public:
  // `command` is a program's path and its arguments; what it prints goes to the
  // file `output`, which is replaced.
  static absl::StatusOr<std::unique_ptr<Process>> Start(
      std::vector<std::string> command, const std::string& output);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  bool Running();
  // INTERNAL naming the program, its status and its output's file, unless it
  // exited with 0.
  absl::Status Await();

 private:
  Process(pid_t pid, std::string name, std::string output)
      : pid_(pid), name_(std::move(name)), output_(std::move(output)) {}

  const pid_t pid_;
  const std::string name_;
  const std::string output_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_PROCESS_H_
