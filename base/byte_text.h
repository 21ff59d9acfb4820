// Numbers of bytes for people who compare them.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_BYTE_TEXT_H_
#define ROUNDHOUSE_BASE_BYTE_TEXT_H_

#include <cstdint>
#include <string>

namespace roundhouse {

// "1610612736 bytes (1.5 GiB)"; below 1 KiB "12 bytes".
std::string ByteText(uint64_t bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_BYTE_TEXT_H_
