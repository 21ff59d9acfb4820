// Who asks is part of what a name means.
//
// Values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_ACCESS_NAMES_OF_H_
#define ROUNDHOUSE_SERVER_ACCESS_NAMES_OF_H_

#include <functional>

#include "server/access/caller.h"
#include "server/spec/data_files.h"
#include "server/spec/paths.h"

namespace roundhouse {

// What names mean to this caller, where what projects have takes this role in
// them (server/admission/weight_names.h).  Thread-safe.
using NamesOf = std::function<PathResolver(const Caller& caller, Role role)>;

// Which data roots he may use: those of projects with this role, his own, and
// everybody's.  Of what the daemon has in its own, the resolver says whose it
// is.
MayUseRoot RootsOf(const Caller& caller, Role role);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_NAMES_OF_H_
