// Groups over real processes that speak base/wire (tests/fakes).
#include "server/workers/peer_group.h"

#include <signal.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/arena/host_arena.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

constexpr WorkerId kSecond{1};

// Three devices.
class PeerGroupTest : public testing::Test, public WorkerPool::Listener {
 protected:
  PeerGroupTest()
      : loop_(*EventLoop::Create(clock_)),
        arena_(*HostArena::Create(1 << 20, 5)) {
    pool_options_.worker_program = "tests/fakes/wire_worker";
    pool_options_.restart_delay = absl::Milliseconds(1);
    pool_options_.device_count = 3;
    // Fakes send no heartbeats.
    pool_options_.heartbeat_limit = pool_options_.start_limit = absl::Hours(24);
    options_.enabled = true;
    options_.retry_delay = absl::Milliseconds(1);
  }

  void OnWorkerUp(WorkerId worker) override {
    peers_->OnWorkerUp(worker);
    on_event_();
  }
  void OnMessage(WorkerId worker, const wire::Message& message) override {
    left_ += std::holds_alternative<wire::PeersLeft>(message.body) ? 1 : 0;
    formed_ += std::holds_alternative<wire::PeersInvited>(message.body) ? 1 : 0;
    if (std::holds_alternative<wire::SlotDone>(message.body)) End();
    peers_->OnMessage(worker, message);
    on_event_();
  }
  void OnWorkerDown(WorkerId worker, const std::string&) override {
    peers_->OnWorkerDown(worker);
    on_event_();
  }
  void OnDeviceLost(DeviceId device, const std::string&) override {
    lost_ = true;
    peers_->OnDeviceLost(device);
    on_event_();
  }

  // Until an event calls End; `ways` are those of the second device's
  // processes.
  void Run(std::deque<std::string> ways, std::function<void()> on_event) {
    pool_options_.kill_at[kSecond] = std::move(ways);
    on_event_ = std::move(on_event);
    pool_ = *ProcessPool::Create(*loop_, *arena_, pool_options_);
    peers_ = std::make_unique<PeerGroup>(*loop_, *pool_, options_);
    peers_->OnOver([this] { ++over_; });
    ASSERT_TRUE(pool_->Start(this).ok());
    loop_->Run();
  }
  void End() {
    if (std::exchange(ended_, true)) return;
    loop_->After(absl::ZeroDuration(), [this] {
      pool_->Stop(absl::Minutes(5), [this] { loop_->Quit(); });
    });
  }

  // Nothing is asked of the nursery, which has a limit of its own.
  bool AllUp() const {
    for (int i = 0; i < pool_->device_count() + 2; ++i) {
      if (!pool_->up(static_cast<WorkerId>(i))) return false;
    }
    return true;
  }
  // Ends when nothing that was begun, or is due by now, can form another group:
  // its first member would have said so before it answers this.
  void EndOnceQuiet() {
    loop_->After(2 * options_.retry_delay, [this] {
      pool_->Send(pool_->DeviceWorker(DeviceId{0}), wire::RunSlot{});
    });
  }

  ManualClock clock_{SystemClock()};
  ProcessPoolOptions pool_options_;
  PeerGroup::Options options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<ProcessPool> pool_;
  std::unique_ptr<PeerGroup> peers_;
  std::function<void()> on_event_;
  int over_ = 0;
  int left_ = 0;    // a worker said
  int formed_ = 0;  // at least begun to be
  bool lost_ = false;
  bool ended_ = false;
};

TEST_F(PeerGroupTest, IsThereOnceAllHaveJoined) {
  Run({}, [this] {
    if (peers_->number() != 0) End();
  });
  EXPECT_EQ(peers_->number(), 1u);
  EXPECT_EQ(peers_->RankOf(DeviceId{0}), 0u);
  EXPECT_EQ(peers_->RankOf(DeviceId{2}), 2u);
  EXPECT_EQ(left_, 0);
}

TEST_F(PeerGroupTest, IsNotFormedUnlessAsked) {
  options_.enabled = false;
  Run({}, [this] {
    EXPECT_EQ(peers_->number(), 0u);
    if (AllUp()) EndOnceQuiet();
  });
  EXPECT_EQ(formed_, 0);
}

TEST_F(PeerGroupTest, IsOverWithAMemberAndFormedAgain) {
  bool killed = false;
  Run({}, [&] {
    if (peers_->number() == 1 && !std::exchange(killed, true)) {
      kill(pool_->info(kSecond).pid, SIGKILL);
    }
    if (peers_->number() == 2) End();
  });
  EXPECT_EQ(over_, 1);
}

TEST_F(PeerGroupTest, DoesWithoutADeviceThatIsLost) {
  // Dies as soon as it is up.
  Run(std::deque<std::string>(5, "tell-arguments"), [this] {
    if (peers_->number() != 0) End();
  });
  EXPECT_TRUE(lost_);
  EXPECT_EQ(peers_->RankOf(DeviceId{0}), 0u);
  EXPECT_EQ(peers_->RankOf(DeviceId{2}), 1u);
}

// It would get parts of wide slots, and be of no group.
TEST_F(PeerGroupTest, IsFormedAnewWhereADeviceComesBack) {
  bool back = false;
  Run({}, [&] {
    if (peers_->number() == 1) pool_->TakeOut(DeviceId{1}, "lent to anna");
    if (peers_->number() == 2 && !std::exchange(back, true)) {
      EXPECT_EQ(peers_->RankOf(DeviceId{2}), 1u);
      pool_->BringBack(DeviceId{1});
    }
    if (peers_->number() == 3) End();
  });
  EXPECT_EQ(peers_->RankOf(DeviceId{2}), 2u);
  EXPECT_EQ(over_, 2);
}

TEST_F(PeerGroupTest, IsGivenUpWhereAMemberNeverJoins) {
  Run({"lonely"}, [this] {
    EXPECT_EQ(peers_->number(), 0u);
    if (left_ == PeerGroup::kMaxFailures) EndOnceQuiet();
  });
  EXPECT_EQ(left_, PeerGroup::kMaxFailures);
  EXPECT_EQ(formed_, PeerGroup::kMaxFailures);
  EXPECT_EQ(over_, 0);
}

// The device must outlive it: five deaths without a result, and it is lost.
TEST_F(PeerGroupTest, IsGivenUpWhereJoiningKills) {
  Run(std::deque<std::string>(8, "joins-and-dies"), [this] {
    EXPECT_EQ(peers_->number(), 0u);
    if (pool_->info(kSecond).starts == 1 + PeerGroup::kMaxFailures &&
        pool_->up(kSecond)) {
      EndOnceQuiet();
    }
  });
  EXPECT_FALSE(lost_);
  EXPECT_EQ(formed_, PeerGroup::kMaxFailures);
  EXPECT_EQ(pool_->info(kSecond).starts, 1 + PeerGroup::kMaxFailures);
}

TEST_F(PeerGroupTest, IsGivenUpWhereAMemberDoesNotAnswer) {
  int seen = 0;
  Run({"forlorn"}, [&] {
    EXPECT_EQ(peers_->number(), 0u);
    if (!AllUp() || std::exchange(seen, formed_) == formed_) return;
    // Enough for the first, and not for one that is formed then.
    clock_.Advance(options_.limit + absl::Milliseconds(1));
    if (formed_ == PeerGroup::kMaxFailures) EndOnceQuiet();
  });
  EXPECT_EQ(formed_, PeerGroup::kMaxFailures);
  EXPECT_EQ(over_, 0);
}

// An exchange that nobody answers, as when a device hangs in it.
TEST_F(PeerGroupTest, IsOverWhenAnExchangeIsNotAnswered) {
  bool sent = false;
  Run({}, [&] {
    if (AllUp() && peers_->number() == 1 && !std::exchange(sent, true)) {
      peers_->NoteSent();
      clock_.Advance(options_.limit + absl::Milliseconds(1));
    }
    if (peers_->number() == 2) End();
  });
  EXPECT_EQ(over_, 1);
}

TEST_F(PeerGroupTest, StaysWhileExchangesAreAnswered) {
  Run({}, [this] {
    if (!AllUp() || peers_->number() != 1) return;
    peers_->NoteSent();
    peers_->OnMessage(kSecond, {1, wire::SliceDown{.group = 1}});
    // What is due by then is looked at first.
    clock_.Advance(3 * options_.limit);
    End();
  });
  EXPECT_EQ(over_, 0);
  EXPECT_EQ(peers_->number(), 1u);
}

}  // namespace
}  // namespace roundhouse
