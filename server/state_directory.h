// The daemon's state directory: its lock, and whether what the path names is
// still the directory that was locked.
//
//   auto state = StateDirectory::Lock(options.state_dir, patience);
//   ...  // open the store in it
//   state->Keep("jobs.db");
//   RETURN_IF_ERROR(state->Check());  // before an answer that promises
//
// A directory that somebody deletes, or replaces by another, goes on to exist
// for those who have its files open: a store in it takes commits that nobody
// will find again.
#ifndef ROUNDHOUSE_SERVER_STATE_DIRECTORY_H_
#define ROUNDHOUSE_SERVER_STATE_DIRECTORY_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// Keep from one thread, before others call Check, which is thread-safe.
class StateDirectory {
 public:
  // Makes the directory where there is none and takes two locks (flock), each
  // tried for `patience`: the directory itself, which nobody can delete and
  // make anew beside the daemon, and the file `lock` in it, all that daemons
  // of before this lock.  Blocking.
  // INVALID_ARGUMENT: it cannot be made or opened.  FAILED_PRECONDITION:
  // another daemon, or a process of one, has either lock.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Lock(
      const std::string& path, absl::Duration patience);
  // Both locks are free when no process has the descriptors any more.
  ~StateDirectory() = default;
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  // The directory's descriptor.  Processes that inherit it hold its lock.
  int fd() const { return directory_.get(); }

  // From now on Check also tells when `name`, a file in it, is gone or another.
  // FAILED_PRECONDITION: it is so already.
  absl::Status Keep(const std::string& name);

  // Whether the path still names the directory that was locked, with the kept
  // files.  FAILED_PRECONDITION says what is gone and what to do.  Two or three
  // stat calls.
  absl::Status Check() const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };

  StateDirectory(std::string path, Descriptor directory, Descriptor lock);
  absl::Status Gone(const std::string& what) const;

  const std::string path_;
  const Descriptor directory_;
  const Descriptor lock_;  // the file
  Identity identity_;      // of the directory
  std::vector<std::pair<std::string, Identity>> kept_;
};

// Checks the directory every few seconds and tells of each change, so that a
// server without calls is seen to be in trouble, too.  Runs on the event loop's
// thread, and looks beside it.
class StateWatch {
 public:
  // `told` is called with an error when Check begins to fail, and with OK when
  // it does no more; both are logged.  The references outlive the watch, and
  // `directory` EventLoop::Run.
  StateWatch(EventLoop& loop, const StateDirectory& directory,
             std::function<void(const absl::Status&)> told,
             absl::Duration interval = absl::Seconds(5));
  ~StateWatch();
  StateWatch(const StateWatch&) = delete;
  StateWatch& operator=(const StateWatch&) = delete;

 private:
  void Later();
  void OnLooked(const absl::Status& found);

  EventLoop& loop_;
  const StateDirectory& directory_;
  const std::function<void(const absl::Status&)> told_;
  const absl::Duration interval_;
  EventLoop::TimerId timer_ = 0;
  bool gone_ = false;  // what was told last
  Background background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STATE_DIRECTORY_H_
