#include "server/access/logins.h"

#include <pwd.h>

#include <vector>

namespace roundhouse {
namespace {

constexpr size_t kEntryBytes = 16 << 10;

}  // namespace

std::optional<uid_t> UidOfLogin(const std::string& login) {
  std::vector<char> buffer(kEntryBytes);
  passwd entry;
  passwd* found = nullptr;
  getpwnam_r(login.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) return std::nullopt;
  return found->pw_uid;
}

}  // namespace roundhouse
