#include "base/wire/peers.h"

#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

TEST(PeersTest, SlicesCoverAUnitOnceAndFitWhereItsSumsLie) {
  for (const uint64_t elements : {32u, 64u, 96u, 4128u, 1'000'032u}) {
    for (const uint64_t count : {2u, 3u, 7u, 8u}) {
      int64_t next = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const IndexRange slice = SliceOf(elements, count, i);
        EXPECT_EQ(slice.begin, next);
        EXPECT_EQ(slice.begin % kSliceAlignElements, 0);
        EXPECT_LE(static_cast<uint64_t>(slice.size()) * sizeof(float),
                  elements * DTypeBytes(DType::kBF16));
        next = slice.end;
      }
      EXPECT_EQ(next, static_cast<int64_t>(elements));
    }
  }
}

TEST(PeersTest, AnyNumberOfSumsFitsIntoTheScratchMemory) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (size_t sums = 2; sums <= 4096; sums = sums * 3 / 2 + 1) {
      const PeerScratch scratch = PeerScratch::Largest(sums, dtype);
      EXPECT_GT(scratch.chunk_elements, 0u) << sums;
      EXPECT_LE(scratch.bytes(), kPeerScratchBytes) << sums;
      EXPECT_EQ(scratch.received(1) % 64, 0u);
    }
  }
}

}  // namespace
}  // namespace roundhouse::wire
