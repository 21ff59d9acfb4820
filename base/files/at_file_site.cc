#include "base/files/at_file_site.h"

#include <dlfcn.h>

namespace roundhouse {
namespace {

// Sets this thread's site and answers the one before; null stands for none.
using SetSite = const char* (*)(const char* site);

// It is looked up and no weak symbol: what becomes of an undefined weak symbol
// in an executable depends on how that is linked.
SetSite Interposer() {
  static const SetSite set_site = reinterpret_cast<SetSite>(
      dlsym(RTLD_DEFAULT, "roundhouse_set_file_site"));
  return set_site;
}

}  // namespace

AtFileSite::AtFileSite(FileSite site) {
  if (Interposer() != nullptr) before_ = Interposer()(site.name);
}

AtFileSite::~AtFileSite() {
  if (Interposer() != nullptr) Interposer()(before_);
}

}  // namespace roundhouse
