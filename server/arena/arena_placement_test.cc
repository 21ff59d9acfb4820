#include "server/arena/arena_placement.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/wire/arena.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  std::ofstream(folder + "/" + name) << text;
  return folder;
}

TEST(ArenaPlacementTest, HugePagesOnAdviceIsOneOfTheSettings) {
  const auto setting = [](const std::string& text) {
    return HugePagesOnAdvice(Write("shmem_enabled", text) + "/shmem_enabled");
  };
  EXPECT_TRUE(setting("always within_size [advise] never deny force\n"));
  EXPECT_FALSE(setting("always within_size advise [never] deny force\n"));
  EXPECT_FALSE(setting("[always] within_size advise never deny force\n"));
  EXPECT_FALSE(HugePagesOnAdvice("/nowhere"));
}

int PolicyOf(const wire::Arena& arena) {
  int mode = -1;
  EXPECT_EQ(
      syscall(SYS_get_mempolicy, &mode, nullptr, 0, arena.base(), MPOL_F_ADDR),
      0);
  return mode;
}

TEST(ArenaPlacementTest, PagesComeFromAllNodesInTurn) {
  const auto arena = *wire::Arena::Create(1 << 20, 1);
  if (syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) != 0) {
    GTEST_SKIP() << "this system has no memory policies";
  }
  const auto spread = [&] {
    return SpreadOverNodes(arena->base(), arena->size_bytes(),
                           std::getenv("TEST_TMPDIR"));
  };
  std::filesystem::remove(std::string(std::getenv("TEST_TMPDIR")) +
                          "/has_memory");
  EXPECT_TRUE(spread().ok());  // no nodes are known
  Write("has_memory", "0\n");
  EXPECT_TRUE(spread().ok());
  EXPECT_EQ(PolicyOf(*arena), MPOL_DEFAULT);
  // The system leaves out nodes that it does not have.
  Write("has_memory", "0-1,3\n");
  const absl::Status status = spread();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(PolicyOf(*arena), MPOL_INTERLEAVE);
  // The policy belongs to the memory, not to the mapping: a worker's has it
  // too.
  const auto mapped = *wire::Arena::Map(dup(arena->fd()));
  EXPECT_EQ(PolicyOf(*mapped), MPOL_INTERLEAVE);
  Write("has_memory", "one\n");
  EXPECT_EQ(spread().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace roundhouse
