// Bytes that nobody can guess, from the kernel.
//
// Thread-safe.  Blocks only before the kernel has gathered entropy at boot.
#ifndef ROUNDHOUSE_BASE_RANDOM_BYTES_H_
#define ROUNDHOUSE_BASE_RANDOM_BYTES_H_

#include <cstddef>
#include <string>

namespace roundhouse {

std::string RandomBytes(size_t bytes);

// 32 hexadecimal digits of a new one.
std::string NewRandomId();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_RANDOM_BYTES_H_
