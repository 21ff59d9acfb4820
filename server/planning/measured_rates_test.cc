#include "server/planning/measured_rates.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uint64_t kMiB = 1 << 20;

wire::SlotDone Done(uint64_t up, int64_t h2d_ns, uint64_t down,
                    int64_t d2h_ns) {
  wire::SlotDone done;
  done.bytes[0][0] = up / 2;
  done.bytes[0][wire::kPurposes - 1] = up - up / 2;
  done.bytes[1][1] = down;
  done.h2d_ns = h2d_ns;
  done.d2h_ns = d2h_ns;
  return done;
}

RunHostOpAction Op(HostOpKind kind, size_t blocks) {
  RunHostOpAction action;
  action.kind = kind;
  action.blocks.assign(blocks, 0);
  return action;
}

Machine Applied(const MeasuredRates& rates) {
  Machine machine;
  rates.Apply(machine);
  return machine;
}

TEST(MeasuredRatesTest, LinksAreTheFastestSlotOfTheSlowerDirection) {
  MeasuredRates rates;
  rates.ObserveSlot(Done(64 * kMiB, 8 * kMiB, 0, 0));  // 8 up
  EXPECT_EQ(Applied(rates).link_rate, Machine().link_rate);
  rates.ObserveSlot(Done(0, 0, 32 * kMiB, 16 * kMiB));  // 2 down
  EXPECT_DOUBLE_EQ(Applied(rates).link_rate, 2);
  rates.ObserveSlot(Done(0, 0, 32 * kMiB, 4 * kMiB));   // 8 down
  rates.ObserveSlot(Done(64 * kMiB, 32 * kMiB, 0, 0));  // crowded
  EXPECT_DOUBLE_EQ(Applied(rates).link_rate, 8);
  rates.ObserveSlot(Done(32 * kMiB, 2 * kMiB, 0, 0));  // 16 up
  EXPECT_DOUBLE_EQ(Applied(rates).link_rate, 8);
}

// 4 bytes an element of a sum, 2 or 4 of a contribution, 30 of an update.
TEST(MeasuredRatesTest, HostWorkIsThatOfAllOperations) {
  constexpr int64_t kElements = 16 << 20;
  MeasuredRates rates;
  EXPECT_EQ(Applied(rates).host_work_rate, 0);
  rates.ObserveHostOp(Op(HostOpKind::kReduce, 3), kElements, DType::kBF16,
                      10 * kElements);
  EXPECT_DOUBLE_EQ(Applied(rates).host_work_rate, 1);
  RunHostOpAction adds = Op(HostOpKind::kReduce, 3);
  adds.add_to_sum = true;
  rates.ObserveHostOp(adds, kElements, DType::kF32, 10 * kElements);
  EXPECT_DOUBLE_EQ(Applied(rates).host_work_rate, 1.5);
  rates.ObserveHostOp(Op(HostOpKind::kUpdate, 0), kElements, DType::kF32,
                      4 * kElements);
  EXPECT_DOUBLE_EQ(Applied(rates).host_work_rate, 60.0 / 24);
  // Both in one pass: no total is written, or read.
  rates.ObserveHostOp(Op(HostOpKind::kUpdate, 4), kElements, DType::kBF16,
                      10 * kElements);
  EXPECT_DOUBLE_EQ(Applied(rates).host_work_rate, 94.0 / 34);
}

// A worker may report anything.
TEST(MeasuredRatesTest, SmallOnesAndNoTimeSayNothing) {
  constexpr auto kLeast = MeasuredRates::kLeastBytes;
  MeasuredRates rates;
  rates.ObserveSlot(Done(kLeast - 1, 1, kLeast - 1, 1));
  rates.ObserveSlot(Done(64 * kMiB, 0, 64 * kMiB, -5));
  rates.ObserveHostOp(Op(HostOpKind::kUpdate, 0), 1000, DType::kF32, 1);
  rates.ObserveHostOp(Op(HostOpKind::kUpdate, 0), kLeast, DType::kF32, 0);
  rates.ObserveHostOp(Op(HostOpKind::kReduce, 0), kLeast, DType::kF32, 1);
  rates.ObserveHostOp(Op(HostOpKind::kGather, 4), kLeast, DType::kF32, 1);
  EXPECT_EQ(Applied(rates).link_rate, Machine().link_rate);
  EXPECT_EQ(Applied(rates).host_work_rate, 0);
}

}  // namespace
}  // namespace roundhouse
