// Tells tests at which site (file_site.h) this thread touches files just now.
//
// A test preloads tests/fakes/file_interposer.cc, which sees every call that
// makes, renames or removes something, and wants a site for each.  file_fault.h
// marks its own calls; who has another library make one marks it with this.
//
//   const AtFileSite at(kMergeWrite);
//
// Without the preloaded library a mark costs a comparison with null, and one
// lookup of a symbol in a process's life.  Its end keeps errno.  A mark belongs
// to the thread that made it; marks may be nested.
#ifndef ROUNDHOUSE_BASE_FILES_AT_FILE_SITE_H_
#define ROUNDHOUSE_BASE_FILES_AT_FILE_SITE_H_

#include "base/files/file_site.h"

namespace roundhouse {

class AtFileSite {
 public:
  explicit AtFileSite(FileSite site);
  ~AtFileSite();
  AtFileSite(const AtFileSite&) = delete;
  AtFileSite& operator=(const AtFileSite&) = delete;

 private:
  const char* before_ = nullptr;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_AT_FILE_SITE_H_
