#include "worker/numa_node.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

// A machine whose node 1 has these CPUs.
std::string Nodes(const std::string& cpus) {
  const std::string root = std::string(std::getenv("TEST_TMPDIR")) + "/nodes";
  std::filesystem::create_directories(root + "/node1");
  std::ofstream(root + "/node1/cpulist") << cpus << "\n";
  return root;
}

cpu_set_t Allowed() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
  return cpus;
}

int First(const cpu_set_t& cpus) {
  int cpu = 0;
  while (!CPU_ISSET(cpu, &cpus)) ++cpu;
  return cpu;
}

// In threads of their own: the test's keeps its CPUs.
TEST(NumaNodeTest, AThreadAndItsThreadsRunOnTheNodesCpus) {
  const cpu_set_t before = Allowed();
  const int cpu = First(before);
  // One that the machine does not have is none of this process's.
  const std::string nodes = Nodes(absl::StrCat(cpu, ",8000"));
  std::thread([&] {
    const absl::Status status = RunOnNode(1, nodes);
    ASSERT_TRUE(status.ok()) << status;
    std::thread([&] {
      const cpu_set_t now = Allowed();
      EXPECT_EQ(CPU_COUNT(&now), 1);
      EXPECT_TRUE(CPU_ISSET(cpu, &now));
    }).join();
  }).join();
  const cpu_set_t after = Allowed();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(NumaNodeTest, ANodeWithoutCpusOfOursChangesNothing) {
  const cpu_set_t before = Allowed();
  for (const char* cpus : {"8000-8001", ""}) {
    EXPECT_EQ(RunOnNode(1, Nodes(cpus)).message(),
              "this process may use no CPU of NUMA node 1");
  }
  EXPECT_EQ(RunOnNode(2, Nodes("0")).code(), absl::StatusCode::kNotFound);
  const cpu_set_t after = Allowed();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace roundhouse::worker
