// Turns of slots (base/wire/commands.h): of those that a device has, it
// computes the one with the lowest turn first.  Each class of jobs has a range
// of its own, so that a turn says which class its slot is of.
#ifndef ROUNDHOUSE_BASE_TURNS_H_
#define ROUNDHOUSE_BASE_TURNS_H_

#include <cstdint>

namespace roundhouse {

// The first turns of normal and of backfill jobs: more than any job is ever
// served.  Urgent jobs have those below.
inline constexpr uint64_t kNormalTurn = uint64_t{1} << 61;
inline constexpr uint64_t kBackfillTurn = uint64_t{1} << 62;

// The slot is computed only while no other can go on.
inline constexpr bool IsBackfillTurn(uint64_t turn) {
  return turn >= kBackfillTurn;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_TURNS_H_
