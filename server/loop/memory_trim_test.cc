#include "server/loop/memory_trim.h"

#include <malloc.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int kBlocks = 40'000;
constexpr size_t kBlockBytes = 2000;

TEST(MemoryTrimTest, WhatABurstLeavesFreeIsGivenBack) {
  const uint64_t before = PrivateRamBytes();
  ASSERT_GT(before, 0u);
  const MemoryTrim trim(absl::Milliseconds(1));
  std::vector<std::unique_ptr<std::string>> blocks;
  blocks.reserve(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<std::string>(kBlockBytes, 'x'));
  }
  const uint64_t most = PrivateRamBytes();
  ASSERT_GE(most, before + kBlocks * kBlockBytes / 2);
  // The last one stays above all that is free.
  blocks.erase(blocks.begin(), blocks.end() - 1);
  if (mallinfo2().fordblks < static_cast<size_t>(kWorthTrimmingBytes)) {
    GTEST_SKIP() << "another allocator (a sanitizer's) is used";
  }
  while (PrivateRamBytes() > before + kBlocks * kBlockBytes / 2) {
    std::this_thread::yield();
  }
  EXPECT_EQ(blocks.back()->size(), kBlockBytes);
}

}  // namespace
}  // namespace roundhouse
