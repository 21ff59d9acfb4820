#include "server/access/names_of.h"

namespace roundhouse {

MayUseRoot RootsOf(const Caller& caller, Role role) {
  return [caller, role](const RootOwner& owner) {
    switch (owner.kind) {
      case RootOwner::Kind::kEverybody:
      case RootOwner::Kind::kServer:
        return true;
      case RootOwner::Kind::kProject:
        return caller.RoleIn(owner.name) >= role;
      case RootOwner::Kind::kUser:
        return caller.admin || caller.user == owner.name;
    }
    return false;
  };
}

}  // namespace roundhouse
