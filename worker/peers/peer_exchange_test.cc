// Parts of a wide slot that hold their sums, and what becomes of these: added
// up between the devices, sent down, or in somebody's way.  The daemon's side
// is the test's.
#include "worker/peers/peer_exchange.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/convert.h"
#include "base/reduction.h"
#include "gtest/gtest.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

using Fleet = std::vector<std::unique_ptr<TestWorker>>;

RoundShape Shape(DType contributions) {
  RoundShape shape{{{0, 1}}, {{2, 4}, {0, 1}}, 7, 7};
  shape.dtype = contributions;
  shape.contribution_dtype = contributions;
  return shape;
}

class PeersTest : public testing::TestWithParam<DType> {
 protected:
  PeersTest() : job_(SmallConfig(4, true), Shape(GetParam()), 5) {}

  void SetUp() override {
    job_.RaiseVersions();
    job_.RaiseInputs();
    Fleet one;
    one.push_back(Start(false));
    RunSlots(one, {slots_[0]});  // the forward stage
  }

  std::unique_ptr<TestWorker> Start(bool peers, uint64_t memory = 96 << 20) {
    TestWorkerOptions options;
    options.device_memory_bytes = memory;
    options.runner.make_run = FakeStageRuns();
    options.runner.peers = peers;
    return std::make_unique<TestWorker>(job_, next_index_++, options);
  }
  Fleet StartFleet(int count, uint64_t group) {
    Fleet fleet;
    for (int i = 0; i < count; ++i) fleet.push_back(Start(true));
    Join(fleet, group);
    return fleet;
  }
  static void Join(Fleet& fleet, uint64_t group) {
    wire::JoinPeers join{
        .group = group, .rank = 0, .size = static_cast<uint32_t>(fleet.size())};
    fleet[0]->Send(join);
    const auto invited = fleet[0]->Await<wire::PeersInvited>();
    EXPECT_EQ(invited.group, group);
    join.id = invited.id;
    for (join.rank = 1; join.rank < join.size; ++join.rank) {
      fleet[join.rank]->Send(join);
    }
    for (auto& worker : fleet) {
      EXPECT_EQ(worker->Await<wire::PeersJoined>().group, group);
    }
  }

  // Micro-batches [begin, end) of the fused slot, as a slot of their own: each
  // is a group of its own.
  wire::RunSlot Part(uint32_t begin, uint32_t end) {
    const wire::RunSlot& whole = slots_[1];
    wire::RunSlot part = whole;
    part.slot = 100 + begin;
    part.sums = wire::SumPlace::kDevice;
    part.micro_batches.assign(whole.micro_batches.begin() + begin,
                              whole.micro_batches.begin() + end);
    part.outputs.clear();
    for (wire::SlotOutput output : whole.outputs) {
      if (output.micro_batch < begin || output.micro_batch >= end) continue;
      output.micro_batch -= begin;
      part.outputs.push_back(output);
    }
    part.contributions.clear();
    for (const wire::SlotUnit& unit : whole.units) {
      const uint64_t bytes = elements(unit.unit) * DTypeBytes(GetParam());
      for (const IndexRange& groups :
           LargestSubtrees(whole.total_groups, {begin, end})) {
        part.contributions.push_back(
            {unit.unit, static_cast<uint32_t>(groups.begin),
             static_cast<uint32_t>(groups.size()), 0, job_.Allocate(bytes)});
      }
    }
    return part;
  }
  uint64_t elements(uint32_t unit) const {
    return static_cast<uint64_t>(job_.units()[unit].element_count);
  }

  // The unit's gradient of the round, fp32, of sums as they leave the devices.
  std::string ExpectedGradient(uint32_t unit,
                               const std::vector<wire::RunSlot>& parts) const {
    std::vector<std::vector<float>> values;
    TreeFold fold;
    const auto add = [&](const std::vector<TreeAdd>& additions) {
      for (const TreeAdd& one : additions) {
        for (size_t i = 0; i < values[one.into].size(); ++i) {
          values[one.into][i] += values[one.from][i];
        }
      }
    };
    for (const wire::RunSlot& part : parts) {
      for (const wire::SlotContribution& sum : part.contributions) {
        if (sum.unit != unit) continue;
        const std::string bytes = job_.ExpectedSum(
            reference_, unit,
            {sum.first_group, int64_t{sum.first_group} + sum.group_count});
        values.emplace_back(elements(unit));
        ToF32(GetParam(), bytes.data(), values.back().data(), elements(unit));
        add(fold.Push(static_cast<int>(values.size()) - 1, sum.group_count));
      }
    }
    add(fold.Finish());
    const std::vector<float>& sum = values[fold.root()];
    return {reinterpret_cast<const char*>(sum.data()),
            sum.size() * sizeof(float)};
  }

  // For each part: the exchange of the unit, with a slice of its own.
  std::vector<wire::PeerSums> Exchanges(uint32_t unit, uint64_t group,
                                        const std::vector<wire::RunSlot>& parts,
                                        const std::vector<uint64_t>& attempts,
                                        uint64_t chunk_elements) {
    wire::PeerSums all;
    all.group = group;
    all.unit = unit;
    all.verb = wire::PeerVerb::kExchange;
    all.dtype = GetParam();
    all.chunk_elements = chunk_elements;
    std::vector<wire::PeerSums> commands;
    for (size_t i = 0; i < parts.size(); ++i) {
      const IndexRange slice = wire::SliceOf(elements(unit), parts.size(), i);
      all.members.push_back({static_cast<uint32_t>(i), 0,
                             static_cast<uint64_t>(slice.begin),
                             static_cast<uint64_t>(slice.size())});
      for (const wire::SlotContribution& sum : parts[i].contributions) {
        if (sum.unit != unit) continue;
        all.sums.push_back({static_cast<uint32_t>(i), sum.group_count});
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      wire::PeerSums one = all;
      one.target_attempt = attempts[i];
      one.slot = parts[i].slot;
      one.self = static_cast<uint32_t>(i);
      one.slice = job_.Allocate(all.members[i].elements * sizeof(float));
      commands.push_back(one);
    }
    return commands;
  }
  static wire::PeerSums Decide(const wire::PeerSums& exchange,
                               wire::PeerVerb verb) {
    wire::PeerSums command;
    command.target_attempt = exchange.target_attempt;
    command.slot = exchange.slot;
    command.unit = exchange.unit;
    command.verb = verb;
    return command;
  }
  static void AwaitHeld(TestWorker& worker, size_t units) {
    while (units > 0) units -= worker.Await<wire::SumsHeld>().units.size();
  }
  // One each; the attempts, when all is held.
  std::vector<uint64_t> Hold(Fleet& fleet,
                             const std::vector<wire::RunSlot>& parts) const {
    std::vector<uint64_t> attempts;
    for (size_t i = 0; i < parts.size(); ++i) {
      attempts.push_back(fleet[i]->Send(parts[i]));
    }
    for (auto& worker : fleet) AwaitHeld(*worker, trained_units());
    return attempts;
  }
  size_t trained_units() const { return slots_[1].units.size(); }

  void CheckOwn(const wire::RunSlot& part) const {
    for (const wire::SlotContribution& sum : part.contributions) {
      EXPECT_TRUE(job_.Bytes(sum.buffer) ==
                  job_.ExpectedSum(reference_, sum.unit,
                                   {sum.first_group, int64_t{sum.first_group} +
                                                         sum.group_count}))
          << "unit " << sum.unit;
    }
  }

  SlotTestJob job_;
  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
  SlotTestJob::Reference reference_ = job_.ComputeReference(FakeStageRuns());
  int next_index_ = 0;
};

// Parts of one group, two and four have one sum, one, and (of [3, 7)) three.
TEST_P(PeersTest, SlicesAreWhatTheHostWouldAddUp) {
  const std::vector<wire::RunSlot> parts = {Part(0, 1), Part(1, 3), Part(3, 7)};
  Fleet fleet = StartFleet(3, 1);
  const std::vector<uint64_t> attempts = Hold(fleet, parts);
  uint64_t chunk = 64;  // many, and one
  for (const wire::SlotUnit& unit : slots_[1].units) {
    SCOPED_TRACE("unit " + std::to_string(unit.unit));
    const auto exchanges = Exchanges(unit.unit, 1, parts, attempts, chunk);
    chunk *= 16;
    std::string gradient;
    for (size_t i = 0; i < parts.size(); ++i) fleet[i]->Send(exchanges[i]);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto down = fleet[i]->Await<wire::SliceDown>();
      EXPECT_EQ(down.slot, parts[i].slot);
      EXPECT_EQ(down.unit, unit.unit);
      EXPECT_TRUE(down.whole);
      gradient += job_.Bytes(exchanges[i].slice);
    }
    EXPECT_TRUE(gradient == ExpectedGradient(unit.unit, parts));
    for (size_t i = 0; i < parts.size(); ++i) {
      fleet[i]->Send(Decide(exchanges[i], wire::PeerVerb::kRelease));
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto done = std::get<wire::SlotDone>(fleet[i]->End(attempts[i]));
    uint64_t slices = 0;
    for (const wire::SlotUnit& unit : slots_[1].units) {
      slices +=
          static_cast<uint64_t>(
              wire::SliceOf(elements(unit.unit), parts.size(), i).size()) *
          sizeof(float);
    }
    EXPECT_EQ(done.bytes[1][1], slices);
    // No sum of its own went down.
    for (const wire::SlotContribution& sum : parts[i].contributions) {
      EXPECT_EQ(job_.Bytes(sum.buffer), std::string(sum.buffer.bytes, '\0'));
    }
  }
}

TEST_P(PeersTest, SumsGoDownWhereTheDaemonSaysSo) {
  const wire::RunSlot part = Part(3, 7);
  Fleet fleet;
  fleet.push_back(Start(false));  // holding needs no group
  const uint64_t attempt = fleet[0]->Send(part);
  AwaitHeld(*fleet[0], trained_units());
  for (const wire::SlotUnit& unit : slots_[1].units) {
    wire::PeerSums order;
    order.target_attempt = attempt;
    order.unit = unit.unit;
    order.verb = wire::PeerVerb::kDownload;
    fleet[0]->Send(order);
    fleet[0]->Send(order);  // the second one finds nothing
  }
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(fleet[0]->End(attempt)));
  CheckOwn(part);
}

// The one that was asked for takes part all the same, so nobody waits for it;
// what the others have then means nothing, and they still have their sums.
TEST_P(PeersTest, APartThatIsGoneIsNoObstacle) {
  const std::vector<wire::RunSlot> parts = {Part(0, 3), Part(3, 7)};
  Fleet fleet = StartFleet(2, 4);
  const std::vector<uint64_t> attempts = Hold(fleet, parts);
  fleet[0]->Cancel(attempts[0]);
  EXPECT_TRUE(
      std::holds_alternative<wire::Withdrawn>(fleet[0]->End(attempts[0])));
  const uint32_t unit = slots_[1].units[0].unit;
  const auto exchanges = Exchanges(unit, 4, parts, attempts, 256);
  for (size_t i = 0; i < parts.size(); ++i) fleet[i]->Send(exchanges[i]);
  EXPECT_EQ(fleet[0]->Await<wire::SliceDown>().whole, 0u);
  EXPECT_EQ(fleet[1]->Await<wire::SliceDown>().whole, 1u);
  for (const wire::SlotUnit& one : slots_[1].units) {
    wire::PeerSums order = Decide(exchanges[1], wire::PeerVerb::kDownload);
    order.unit = one.unit;
    fleet[1]->Send(order);
  }
  EXPECT_TRUE(
      std::holds_alternative<wire::SlotDone>(fleet[1]->End(attempts[1])));
  CheckOwn(parts[1]);
}

TEST_P(PeersTest, AnExchangeEndsWithItsGroupAndTheNextGroupWorks) {
  const std::vector<wire::RunSlot> parts = {Part(0, 3), Part(3, 7)};
  Fleet fleet = StartFleet(2, 1);
  const std::vector<uint64_t> attempts = Hold(fleet, parts);
  const uint32_t unit = slots_[1].units[0].unit;
  fleet[0]->Send(Exchanges(unit, 1, parts, attempts, 256)[0]);
  fleet[0]->Send(wire::LeavePeers{1});  // the other one is dead, say
  EXPECT_EQ(fleet[0]->Await<wire::SliceDown>().whole, 0u);
  fleet[1]->Send(wire::LeavePeers{1});
  Join(fleet, 2);
  // One that names the group before it is answered at once.
  fleet[1]->Send(Exchanges(unit, 1, parts, attempts, 256)[1]);
  EXPECT_EQ(fleet[1]->Await<wire::SliceDown>().whole, 0u);
  const auto exchanges = Exchanges(unit, 2, parts, attempts, 256);
  std::string gradient;
  for (size_t i = 0; i < parts.size(); ++i) fleet[i]->Send(exchanges[i]);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(fleet[i]->Await<wire::SliceDown>().whole, 1u);
    gradient += job_.Bytes(exchanges[i].slice);
  }
  EXPECT_TRUE(gradient == ExpectedGradient(unit, parts));
}

TEST_P(PeersTest, AWorkerThatDiesEndsTheGroupForTheOthers) {
  const std::vector<wire::RunSlot> parts = {Part(0, 3), Part(3, 7)};
  Fleet fleet = StartFleet(2, 1);
  const std::vector<uint64_t> attempts = Hold(fleet, parts);
  const auto exchanges =
      Exchanges(slots_[1].units[0].unit, 1, parts, attempts, 256);
  fleet.pop_back();
  fleet[0]->Send(exchanges[0]);
  EXPECT_EQ(fleet[0]->Await<wire::PeersLeft>().group, 1u);
  EXPECT_EQ(fleet[0]->Await<wire::SliceDown>().whole, 0u);
}

// The second slot wants the memory that the first one's sums are in; nobody
// tells what becomes of these.
TEST_P(PeersTest, HeldSumsMakeRoom) {
  const wire::RunSlot first = Part(0, 3);
  wire::RunSlot second = Part(3, 7);
  second.sums = wire::SumPlace::kHost;
  const JobTables tables = **ReadJobTables(job_.arena(), job_.layout_offset());
  const auto bytes = [&](const wire::RunSlot& slot) {
    return PlanSlot(slot, tables, SlotTestJob::kArenaBytes, {1 << 30})
        ->device_bytes();
  };
  Fleet fleet;
  fleet.push_back(Start(false, std::max(bytes(first), bytes(second))));
  const uint64_t attempt = fleet[0]->Send(first);
  const uint64_t behind = fleet[0]->Send(second);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(fleet[0]->End(attempt)));
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(fleet[0]->End(behind)));
  CheckOwn(first);
  CheckOwn(second);
}

// Whoever is told that the slice is down may read it from then on: nobody but
// the daemon decides that the sums go down after all, to the same block.
TEST_P(PeersTest, ASliceStaysWhereItIsWhenMemoryIsWanted) {
  const std::vector<wire::RunSlot> parts = {Part(0, 3), Part(3, 7)};
  wire::RunSlot behind = Part(3, 7);
  behind.sums = wire::SumPlace::kHost;
  behind.slot = 200;
  const JobTables tables = **ReadJobTables(job_.arena(), job_.layout_offset());
  const auto bytes = [&](const wire::RunSlot& slot) {
    return PlanSlot(slot, tables, SlotTestJob::kArenaBytes, {1 << 30})
        ->device_bytes();
  };
  Fleet fleet;
  fleet.push_back(Start(true, wire::kPeerScratchBytes +
                                  std::max(bytes(parts[0]), bytes(behind))));
  fleet.push_back(Start(true));
  Join(fleet, 1);
  const std::vector<uint64_t> attempts = Hold(fleet, parts);
  const uint32_t unit = slots_[1].units[0].unit;
  auto exchanges = Exchanges(unit, 1, parts, attempts, 256);
  // Where the daemon puts them: in the block of each part's first sum.
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto first = std::find_if(
        parts[i].contributions.begin(), parts[i].contributions.end(),
        [&](const wire::SlotContribution& sum) { return sum.unit == unit; });
    exchanges[i].slice.offset = first->buffer.offset;
  }
  absl::SleepFor(kHoldLimit + absl::Milliseconds(300));
  fleet[0]->Send(exchanges[0]);  // waits for the other one
  absl::SleepFor(absl::Milliseconds(100));
  const uint64_t wanting = fleet[0]->Send(behind);  // wants memory
  absl::SleepFor(absl::Milliseconds(400));
  fleet[1]->Send(exchanges[1]);
  for (auto& worker : fleet) {
    ASSERT_EQ(worker->Await<wire::SliceDown>().whole, 1u);
  }
  // Now the daemon has the unit reduced, and says so (kRelease) meanwhile.
  absl::SleepFor(absl::Milliseconds(400));
  std::string gradient;
  for (size_t i = 0; i < parts.size(); ++i) {
    gradient += job_.Bytes(exchanges[i].slice);
  }
  EXPECT_TRUE(gradient == ExpectedGradient(unit, parts));
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const wire::SlotUnit& one : slots_[1].units) {
      wire::PeerSums order =
          Decide(exchanges[i], one.unit == unit ? wire::PeerVerb::kRelease
                                                : wire::PeerVerb::kDownload);
      order.unit = one.unit;
      fleet[i]->Send(order);
    }
    EXPECT_TRUE(
        std::holds_alternative<wire::SlotDone>(fleet[i]->End(attempts[i])));
  }
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(fleet[0]->End(wanting)));
}

// For the sanitizers: slots are asked for, groups end and workers stop in the
// middle of exchanges.
TEST_P(PeersTest, AnythingMayEndAtAnyTime) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto chance = [&](uint64_t of) { return random() % of == 0; };
    next_index_ = 1;
    for (int i = 0; i < 4; ++i) {
      for (auto& cancel : job_.arena().doorbells().bell[i].cancel) {
        cancel.store(0);
      }
    }
    const std::vector<wire::RunSlot> parts = {Part(0, 1), Part(1, 3),
                                              Part(3, 7)};
    Fleet fleet = StartFleet(3, 1);
    std::vector<uint64_t> attempts;
    for (size_t i = 0; i < parts.size(); ++i) {
      attempts.push_back(fleet[i]->Send(parts[i]));
    }
    const bool all = !chance(3);
    for (auto& worker : fleet) {
      AwaitHeld(*worker, all ? trained_units() : 1);
    }
    for (const wire::SlotUnit& unit : slots_[1].units) {
      const auto exchanges =
          Exchanges(unit.unit, 1, parts, attempts, 64 << random() % 6);
      for (size_t i = 0; i < parts.size(); ++i) fleet[i]->Send(exchanges[i]);
      const size_t who = random() % parts.size();
      switch (random() % 12) {
        case 0:
          fleet[who]->Cancel(attempts[who]);
          break;
        case 1:
          fleet[who]->Send(wire::Withdraw{attempts[who]});
          break;
        case 2:
          for (auto& worker : fleet) worker->Send(wire::LeavePeers{1});
          break;
        case 3:
          fleet[who]->Send(Decide(exchanges[who], wire::PeerVerb::kDownload));
          break;
        case 4:
          fleet[who]->Send(Decide(exchanges[who], wire::PeerVerb::kRelease));
          break;
        default:
          break;
      }
    }
    while (!fleet.empty()) {
      const size_t who = random() % fleet.size();
      if (chance(2)) absl::SleepFor(absl::Microseconds(random() % 3000));
      fleet.erase(fleet.begin() + static_cast<long>(who));
    }
  }
}

TEST_P(PeersTest, WhatMakesNoSenseIsAnsweredAndHarmsNobody) {
  const std::vector<wire::RunSlot> parts = {Part(0, 3), Part(3, 7)};
  Fleet fleet = StartFleet(2, 1);
  const auto good = Exchanges(slots_[1].units[0].unit, 1, parts, {1, 2}, 256);
  std::vector<wire::PeerSums> bad(6, good[0]);
  bad[0].self = 2;
  bad[1].members[1].first_element += 16;
  bad[2].sums[0].member = 9;
  bad[3].chunk_elements = ~uint64_t{0} / 8;
  bad[4].slice.offset = SlotTestJob::kArenaBytes;
  bad[5].sums.clear();
  for (const wire::PeerSums& command : bad) {
    fleet[0]->Send(command);
    EXPECT_EQ(fleet[0]->Await<wire::SliceDown>().whole, 0u);
  }
  Fleet alone;
  alone.push_back(Start(false));
  alone[0]->Send(wire::JoinPeers{.group = 3, .rank = 0, .size = 2});
  EXPECT_EQ(alone[0]->Await<wire::PeersLeft>().group, 3u);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PeersTest,
                         testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) {
                           return std::string(DTypeName(info.param));
                         });

}  // namespace
}  // namespace roundhouse::worker
