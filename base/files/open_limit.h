// Opens that may never come back: below a mount whose server is gone the kernel
// keeps whoever looks a name up until it answers, and no signal helps.
//
//   LimitOpens();                       // once, as a process starts
//   const int fd = OpenWithinLimit(path, [path] { return open(...); });
//
// Where opens are limited each runs on a thread of these, and whoever asked
// waits kOpenLimit for it.  Then he goes on with an error, and the thread stays
// behind until the kernel lets go; what it opened then is closed.  Meanwhile
// the same path is refused at once, so that a path costs one thread however
// often it is asked for; with kMaxHangingOpens of them all opens are.  Each is
// told in the daemon's log.
//
// Nobody joins these threads, and a process may exit while they hang.  They
// have nothing of anybody's: the call owns all that it uses, descriptors too,
// and what the threads share is never destroyed.  That is why calls capture by
// value.  What the kernel still has of a file is the kernel's to clean up.
//
// Thread-safe.
#ifndef ROUNDHOUSE_BASE_FILES_OPEN_LIMIT_H_
#define ROUNDHOUSE_BASE_FILES_OPEN_LIMIT_H_

#include <errno.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace roundhouse {

inline constexpr absl::Duration kOpenLimit = absl::Seconds(20);
// How long a process that is to end waits for one.
inline constexpr absl::Duration kOpenLimitAtEnd = absl::Seconds(2);
inline constexpr int kMaxHangingOpens = 32;
// What errno says of an open that was given up; no file system says so.
inline constexpr int kOpenHangs = ETIME;

// What strerror says, or why an open was given up.
std::string OpenErrorText(int error);
// Whether this is UNAVAILABLE for an open that was given up, with the text
// above: asking again at once is of no use.
bool IsOpenHang(const absl::Status& status);

class OpenLimit {
 public:
  struct Limits {
    absl::Duration wait = kOpenLimit;
    absl::Duration wait_at_end = kOpenLimitAtEnd;
    int most_hanging = kMaxHangingOpens;
  };

  explicit OpenLimit(const Limits& limits);
  // Threads that hang stay behind.
  ~OpenLimit();
  OpenLimit(const OpenLimit&) = delete;
  OpenLimit& operator=(const OpenLimit&) = delete;

  // What `open` says, -1 with errno where it failed.  -1 with kOpenHangs: it
  // takes longer, or hangs since an earlier call; ENOMEM: threads are short.
  // `open` owns what it uses; `path` names it.
  int Open(const std::string& path, std::function<int()> open);
  // The same for a call that opens nothing; false, with errno as above, where
  // it is not done.  What it makes is its own until then.
  bool Call(const std::string& path, std::function<void()> call);
  // The process is to end: who waits, and who comes, waits for wait_at_end
  // only.
  void Hurry();
  // Calls that were given up and are not over.
  int hanging() const;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;
};

// The process's: opens of checked_file.h have limits from now on.  Call before
// threads start.
void LimitOpens();
bool OpensAreLimited();
// Hurry of it; no effect where opens have no limit.
void HurryOpens();
// OpenLimit::Open and Call of it, or `open` itself where opens have no limit.
int OpenWithinLimit(const std::string& path, std::function<int()> open);
bool CallWithinLimit(const std::string& path, std::function<void()> call);
// As realpath.  "" with errno: there is none, or kOpenHangs.
std::string RealPathWithinLimit(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_OPEN_LIMIT_H_
