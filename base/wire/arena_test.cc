#include "base/wire/arena.h"

#include <fstream>
#include <ios>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

// What the kernel says of the mapping that begins at `base` (proc(5), smaps).
std::string FlagsOf(const std::byte* base) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(base) << "-";
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind(begin.str(), 0) == 0) found = true;
    if (found && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

// A process that dies with a core dump must be gone soon.
TEST(ArenaTest, IsInNoCoreDump) {
  const auto arena = *Arena::Create(1 << 20, 4);
  const std::string flags = FlagsOf(arena->base());
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
}

}  // namespace
}  // namespace roundhouse::wire
