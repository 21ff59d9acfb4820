// What daemon and workers both reckon of exchanges of sums between devices.
#ifndef ROUNDHOUSE_BASE_WIRE_PEERS_H_
#define ROUNDHOUSE_BASE_WIRE_PEERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/reduction.h"

namespace roundhouse::wire {

// What a device worker that exchanges sums takes of its device's limit for it,
// as long as it lives: so no exchange ever waits for memory.
inline constexpr uint64_t kPeerScratchBytes = uint64_t{32} << 20;

// Slices begin at multiples of this.  Of two or more of a unit none has more
// than half of it, rounded up to this: so its fp32 values take no more than the
// unit's sum in 2 bytes an element, which is a multiple of 64 bytes.
inline constexpr uint64_t kSliceAlignElements = 16;

// The `index`-th of `count` slices of a unit, as equal as the alignment lets
// them be; the last ones may be empty.
constexpr IndexRange SliceOf(uint64_t elements, uint64_t count,
                             uint64_t index) {
  const uint64_t blocks =
      (elements + kSliceAlignElements - 1) / kSliceAlignElements;
  const auto at = [&](uint64_t i) {
    return static_cast<int64_t>(
        std::min(elements, blocks * i / count * kSliceAlignElements));
  };
  return {at(index), at(index + 1)};
}

// The scratch memory of an exchange of `sums` sums, a chunk of a slice at a
// time: what is received of every sum; fp32 values of the fold; two fp32
// results, one of which goes down while the next is made.
struct PeerScratch {
  static constexpr size_t kResults = 2;

  size_t sums = 0;
  uint64_t element_bytes = 0;  // of the sums
  uint64_t chunk_elements = 0;

  // TreeFold's most: one for each power of two of up to 4096 groups.
  static constexpr size_t FoldValues(size_t sums) {
    return std::min<size_t>(sums, 13);
  }
  constexpr uint64_t received(size_t sum) const {
    return sum * chunk_elements * element_bytes;
  }
  constexpr uint64_t value(size_t i) const {
    return received(sums) + i * chunk_elements * sizeof(float);
  }
  constexpr uint64_t result(size_t i) const {
    return value(FoldValues(sums) + i);
  }
  constexpr uint64_t bytes() const { return result(kResults); }

  // The largest that fits into kPeerScratchBytes.  REQUIRES: at most 4096 sums.
  static constexpr PeerScratch Largest(size_t sums, DType dtype) {
    PeerScratch scratch{sums, DTypeBytes(dtype), 1};
    constexpr uint64_t kAlign = 64;  // every part begins at 64 bytes
    scratch.chunk_elements =
        kPeerScratchBytes / scratch.bytes() / kAlign * kAlign;
    return scratch;
  }
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_PEERS_H_
