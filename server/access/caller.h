// Who makes a call, and what he may do.
//
// Values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_ACCESS_CALLER_H_
#define ROUNDHOUSE_SERVER_ACCESS_CALLER_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

namespace roundhouse {

// Each may do what those before it may.  The numbers are stored: never
// renumber.
enum class Role {
  kNone = 0,
  // Looks at what a project has.
  kViewer = 1,
  // Has jobs of his own in it.
  kMember = 2,
  // Everything, in every project.
  kAdmin = 3,
};

// "viewer"; "none".
const char* RoleName(Role role);

struct Caller {
  std::optional<uid_t> uid;  // of his process; nullopt: over the network
  std::string principal;     // as stored with requests: "uid:1000", "user:anna"
  std::string user;          // "": without an account
  bool admin = false;
  std::map<std::string, Role> projects;  // in which he has a role
  // Over the network: the id of the token that he showed, "" else, and the
  // highest role that it may use.  The roles above are capped by it.
  std::string token;
  Role scope = Role::kAdmin;
  // What an admin is everywhere whose token may do less.
  Role everywhere = Role::kNone;

  // He may use no role above `most` from now on.
  void CapAt(Role most);
  // kAdmin in every project for an admin.
  Role RoleIn(const std::string& project) const;
  // The highest that he has anywhere.
  Role HighestRole() const;
  // What jobs that he makes say of their owner: the user, else the principal.
  const std::string& owner() const { return user.empty() ? principal : user; }
  bool operator==(const Caller&) const = default;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_CALLER_H_
