#include "scheduler/dispatch/sum_exchanges.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using Verb = SumExchanges::Verb;

constexpr SumSetId kSet = {3, 1, 7};

SlotId Slot(uint64_t number) { return static_cast<SlotId>(number); }
DeviceId Device(int index) { return static_cast<DeviceId>(index); }

std::string Text(const std::vector<SumExchanges::Order>& orders) {
  std::string text;
  for (const SumExchanges::Order& order : orders) {
    text += order.verb == Verb::kExchange   ? "x"
            : order.verb == Verb::kDownload ? "d"
                                            : "r";
    text += std::to_string(Number(order.slot)) + " ";
  }
  return text;
}

class SumExchangesTest : public testing::Test {
 protected:
  SumExchangesTest() {
    for (int part : {1, 2, 3}) {
      EXPECT_TRUE(exchanges_.MayHold(Device(part), kSet));
    }
  }

  // Holds the sums of one of three parts. They have 4, 2 and 2 groups, and a
  // device each.
  void Hold(uint64_t slot, bool may_exchange = true) {
    exchanges_.Held(Slot(slot), kSet, slot == 1 ? 4 : 2, 8, may_exchange);
  }
  std::string Orders() { return Text(exchanges_.TakeOrders()); }

  SumExchanges exchanges_;
};

TEST_F(SumExchangesTest, AllPartsExchangeThenAllAreReleased) {
  Hold(3);
  Hold(1);
  EXPECT_EQ(Orders(), "");
  Hold(2);
  EXPECT_EQ(Orders(), "x1 x2 x3 ");
  EXPECT_EQ(exchanges_.PartsOf(kSet),
            (std::vector<SlotId>{Slot(1), Slot(2), Slot(3)}));
  exchanges_.Exchanged(Slot(2), kSet, true);
  exchanges_.Exchanged(Slot(1), kSet, true);
  EXPECT_EQ(Orders(), "");
  EXPECT_TRUE(exchanges_.TakeDone().empty());
  exchanges_.Exchanged(Slot(3), kSet, true);
  EXPECT_EQ(Orders(), "r1 r2 r3 ");
  const auto done = exchanges_.TakeDone();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].set, kSet);
  EXPECT_EQ(done[0].slots.size(), 3u);
  // A part that dies afterwards changes nothing.
  exchanges_.Gone(Slot(2));
  exchanges_.NotHeld(Slot(2), kSet);
  EXPECT_EQ(Orders(), "");
}

TEST_F(SumExchangesTest, WithoutAGroupEachSumGoesDown) {
  Hold(1);
  Hold(2);
  Hold(3, false);
  EXPECT_EQ(Orders(), "d1 d2 d3 ");
  EXPECT_EQ(exchanges_.TakeFailed(), 0);
}

// It would get no more slots while it held these: nobody waits for them.
TEST_F(SumExchangesTest, ASecondPartOnADeviceSendsTheFirstOneDown) {
  Hold(1);
  EXPECT_FALSE(exchanges_.MayHold(Device(1), kSet));
  EXPECT_EQ(Orders(), "d1 ");
  EXPECT_FALSE(exchanges_.MayHold(Device(4), kSet));
  Hold(2);
  EXPECT_EQ(Orders(), "d2 ");
}

TEST_F(SumExchangesTest, APartThatIsGoneSendsTheOthersDown) {
  Hold(1);
  Hold(2);
  exchanges_.Gone(Slot(1));
  EXPECT_EQ(Orders(), "d2 ");
  // It comes again, and does not hold.
  exchanges_.NotHeld(Slot(1), kSet);
  Hold(3);
  EXPECT_EQ(Orders(), "d3 ");
}

TEST_F(SumExchangesTest, APartThatSentItsOwnSendsTheOthersDown) {
  exchanges_.NotHeld(Slot(2), kSet);
  Hold(1);
  EXPECT_EQ(Orders(), "d1 ");
  // It had told of holding before it made room.
  Hold(2);
  EXPECT_EQ(Orders(), "d2 ");
}

// Parts that exchange are told once they have answered, whatever the answer.
TEST_F(SumExchangesTest, ABrokenExchangeEndsWithEveryAnswer) {
  for (uint64_t slot : {1, 2, 3}) Hold(slot);
  Orders();
  exchanges_.Exchanged(Slot(3), kSet, true);
  exchanges_.Gone(Slot(2));
  EXPECT_EQ(Orders(), "d3 ");
  exchanges_.Exchanged(Slot(1), kSet, false);
  EXPECT_EQ(Orders(), "d1 ");
  EXPECT_EQ(exchanges_.TakeFailed(), 1);
  EXPECT_TRUE(exchanges_.TakeDone().empty());
}

TEST_F(SumExchangesTest, OneThatIsWholeAllTheSameGoesDownToo) {
  for (uint64_t slot : {1, 2, 3}) Hold(slot);
  Orders();
  exchanges_.BreakAll();
  EXPECT_EQ(Orders(), "");
  for (uint64_t slot : {1, 2, 3}) exchanges_.Exchanged(Slot(slot), kSet, true);
  EXPECT_EQ(Orders(), "d1 d2 d3 ");
  EXPECT_TRUE(exchanges_.TakeDone().empty());
}

TEST_F(SumExchangesTest, AForgottenStepIsOver) {
  Hold(1);
  exchanges_.Forget(kSet.step_number);
  exchanges_.Gone(Slot(1));
  exchanges_.Exchanged(Slot(1), kSet, true);
  EXPECT_EQ(Orders(), "");
}

// Parts hold, exchange, die, come again and make room at random.  In the end a
// set is done, and all its parts are released or gone; or it is not, and every
// part sent its sums down.
TEST(SumExchangesSeededTest, EverySetEndsOneWay) {
  enum class At { kComputing, kHolding, kExchanging, kDown, kReleased };
  int done_sets = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto chance = [&](uint64_t of) { return random() % of == 0; };
    const uint64_t parts = 2 + random() % 4;
    SumExchanges exchanges;
    std::map<uint64_t, At> at;
    std::map<uint64_t, bool> holds;
    bool done = false;
    bool was_done = false;
    for (uint64_t p = 1; p <= parts; ++p) {
      at[p] = At::kComputing;
      holds[p] = exchanges.MayHold(Device(static_cast<int>(p)), kSet);
    }
    const auto take = [&] {
      for (const auto& one : exchanges.TakeDone()) {
        EXPECT_FALSE(was_done);
        done = was_done = true;
        EXPECT_EQ(one.slots.size(), parts);
      }
      for (const auto& order : exchanges.TakeOrders()) {
        At& part = at[Number(order.slot)];
        if (order.verb == Verb::kExchange) {
          EXPECT_EQ(part, At::kHolding);
          part = At::kExchanging;
        } else if (order.verb == Verb::kDownload) {
          EXPECT_FALSE(done);
          // It may have made room just now.
          EXPECT_TRUE(part == At::kHolding || part == At::kDown);
          part = At::kDown;
        } else {
          EXPECT_TRUE(done);
          EXPECT_EQ(part, At::kHolding);
          part = At::kReleased;
        }
      }
    };
    // The last ones bring no more trouble, so that all comes to its end.
    for (int event = 0; event < 300; ++event) {
      const bool trouble = event < 100;
      const uint64_t p = 1 + random() % parts;
      if (at[p] == At::kExchanging && !chance(3)) {
        at[p] = At::kHolding;
        exchanges.Exchanged(Slot(p), kSet, !chance(12));
      } else if (at[p] == At::kComputing && holds[p]) {
        at[p] = At::kHolding;
        exchanges.Held(Slot(p), kSet, 1, static_cast<int64_t>(parts),
                       !chance(20));
      } else if (at[p] == At::kComputing) {
        at[p] = At::kDown;
        exchanges.NotHeld(Slot(p), kSet);
      } else if (trouble && at[p] == At::kHolding && chance(30)) {
        at[p] = At::kDown;  // made room
        exchanges.NotHeld(Slot(p), kSet);
      } else if (trouble && chance(40) && at[p] != At::kReleased) {
        exchanges.Gone(Slot(p));
        if (done) continue;
        at[p] = At::kComputing;
        holds[p] = false;
        exchanges.NotHeld(Slot(p), kSet);
      } else if (trouble && chance(80)) {
        exchanges.BreakAll();
      }
      take();
    }
    for (const auto& [p, state] : at) {
      EXPECT_EQ(state, done ? At::kReleased : At::kDown) << "part " << p;
    }
    done_sets += done ? 1 : 0;
  }
  // Both ends are met.
  EXPECT_GT(done_sets, 400);
  EXPECT_LT(done_sets, 3600);
}

}  // namespace
}  // namespace roundhouse
