// How many files, sockets and processes' pipes this process may have open.
#ifndef ROUNDHOUSE_SERVER_WORKERS_DESCRIPTOR_LIMIT_H_
#define ROUNDHOUSE_SERVER_WORKERS_DESCRIPTOR_LIMIT_H_

#include <cstdint>

namespace roundhouse {

// Enough for every connection that the API lets in, and for all else.
inline constexpr uint64_t kMostDescriptors = 16'384;
// With fewer, users may find that nobody else is let in.
inline constexpr uint64_t kFewDescriptors = 1024;

// Raises the limit as far as the hard limit lets it, to kMostDescriptors;
// lowers nothing.  The limit that holds then.  Children inherit it.
uint64_t RaiseDescriptorLimit();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_DESCRIPTOR_LIMIT_H_
