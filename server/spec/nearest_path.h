// What a path that is not there may have been meant to be: a name in one of the
// data roots that is spelt alike.
//
// Thread-safe.  Blocks on directory reads, few and bounded.
#ifndef ROUNDHOUSE_SERVER_SPEC_NEAREST_PATH_H_
#define ROUNDHOUSE_SERVER_SPEC_NEAREST_PATH_H_

#include <cstddef>
#include <string>

#include "server/spec/paths.h"

namespace roundhouse {

// How many of a folder's names are compared.
inline constexpr size_t kComparedNames = 1000;

// `path` with the one part of it that is not there replaced by the nearest name
// (base/nearest_name.h) beside it, where that leads to something in a root that
// `may` says yes to; else "".
std::string NearestPath(const DataRoots& roots, const std::string& path,
                        const MayUseRoot& may);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_NEAREST_PATH_H_
