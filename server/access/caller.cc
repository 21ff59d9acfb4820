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

void Caller::CapAt(Role most) {
  scope = std::min(scope, most);
  everywhere = std::min(everywhere, most);
  for (auto& [project, role] : projects) role = std::min(role, most);
  if (!admin || most == Role::kAdmin) return;
  admin = false;
  everywhere = most;
}

Role Caller::RoleIn(const std::string& project) const {
  if (admin) return Role::kAdmin;
  const auto found = projects.find(project);
  return found == projects.end() ? everywhere
                                 : std::max(everywhere, found->second);
}

Role Caller::HighestRole() const {
  if (admin) return Role::kAdmin;
  Role highest = everywhere;
  for (const auto& [project, role] : projects) {
    highest = std::max(highest, role);
  }
  return highest;
}

}  // namespace roundhouse
