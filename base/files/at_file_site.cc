#include "base/files/at_file_site.h"

#include <dlfcn.h>

namespace roundhouse {
namespace {

// Answers the site before; null is none.
using SetSite = const char* (*)(const char* site);

// A lookup, not a weak symbol: what becomes of an undefined weak symbol in an
// executable depends on how it is linked.
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
