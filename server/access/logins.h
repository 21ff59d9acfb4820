// The logins of the machine: its own names for uids.
//
// They may come over a network, so the calls may block.  Thread-safe.
#ifndef ROUNDHOUSE_SERVER_ACCESS_LOGINS_H_
#define ROUNDHOUSE_SERVER_ACCESS_LOGINS_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace roundhouse {

// nullopt: the system knows none.
std::optional<uid_t> UidOfLogin(const std::string& login);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_LOGINS_H_
