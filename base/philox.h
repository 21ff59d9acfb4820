// The counter-based generator Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words that are a function
// of a counter and a key only.  Whoever needs random numbers that any process
// can compute again (initial weights, dropout masks) counts, and keeps no
// state.  Pure; in the header because callers' loops are only fast around it
// when it is inlined.
#ifndef ROUNDHOUSE_BASE_PHILOX_H_
#define ROUNDHOUSE_BASE_PHILOX_H_

#include <array>
#include <cstdint>

namespace roundhouse {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_PHILOX_H_
