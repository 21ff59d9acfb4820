// What the layout tables of training and sampling jobs share
// (base/wire/layout.h).  Pure functions and values.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_UNIT_LAYOUT_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_UNIT_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "base/model/parameters.h"
#include "base/wire/arena.h"
#include "base/wire/layout.h"

namespace roundhouse {

// Hands out 64-byte-aligned pieces of one range, in a fixed order: run once to
// count the bytes and once to place them.
class LayoutCursor {
 public:
  explicit LayoutCursor(uint64_t offset) : start_(offset), next_(offset) {}
  uint64_t Take(uint64_t bytes) {
    const uint64_t offset = next_;
    next_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  uint64_t bytes() const { return next_ - start_; }

 private:
  const uint64_t start_;
  uint64_t next_;
};

// Appends the parameters of unit number `index`, and fills in `layout` what
// follows from them: which they are, elements, chunks.
void AddParameterLayouts(const UnitSpec& unit, uint32_t index,
                         std::vector<wire::ParameterLayout>& parameters,
                         wire::UnitLayout& layout);

// Writes a job's tables: `job` at `offset`, the others where it says.  Fills in
// what says that it is one, and the counts.
void WriteJobTables(const wire::Arena& arena, uint64_t offset,
                    const std::vector<wire::UnitLayout>& units,
                    const std::vector<wire::ParameterLayout>& parameters,
                    wire::JobLayout& job);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_UNIT_LAYOUT_H_
