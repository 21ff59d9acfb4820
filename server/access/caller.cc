#include "server/access/caller.h"

#include <algorithm>

namespace roundhouse {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kViewer:
      return "viewer";
    case Role::kMember:
      return "member";
    case Role::kAdmin:
      return "admin";
  }
  return "none";
}

Role Caller::RoleIn(const std::string& project) const {
  if (admin) return Role::kAdmin;
  const auto found = projects.find(project);
  return found == projects.end() ? Role::kNone : found->second;
}

Role Caller::HighestRole() const {
  if (admin) return Role::kAdmin;
  Role highest = Role::kNone;
  for (const auto& [project, role] : projects) {
    highest = std::max(highest, role);
  }
  return highest;
}

}  // namespace roundhouse
