// A disk that takes no more, for tests.
#ifndef ROUNDHOUSE_SERVER_TESTING_FULL_DISK_H_
#define ROUNDHOUSE_SERVER_TESTING_FULL_DISK_H_

#include <signal.h>
#include <sys/resource.h>

namespace roundhouse {

// While it is there a file of this process can have so many bytes, as on a full
// disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit few = before_;
    few.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &few);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TESTING_FULL_DISK_H_
