// The pool over real processes that speak base/wire (tests/fakes).
#include "server/workers/process_pool.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/workers/dispatch_priority.h"

namespace roundhouse {
namespace {

constexpr char kFakeWorker[] = "tests/fakes/wire_worker";
constexpr WorkerId kDeviceWorker{0};
constexpr WorkerId kHostWorker{1};
constexpr absl::Duration kGrace = absl::Minutes(5);

// One device, the host and the files worker.  What the pool tells is kept as
// text ("up 0", "done 0 7", "down 0", "lost 0"); `on_told_` reacts to it.
class PoolTest : public testing::Test, public WorkerPool::Listener {
 protected:
  PoolTest()
      : loop_(*EventLoop::Create(clock_)),
        arena_(*HostArena::Create(1 << 20, 3)) {
    // However often it is advanced, workers say later times.
    clock_.Advance(-absl::Hours(1));
    options_.worker_program = kFakeWorker;
    options_.restart_delay = absl::Milliseconds(1);
  }

  void OnWorkerUp(WorkerId worker) override {
    Tell(absl::StrCat("up ", Number(worker)), "");
  }
  void OnMessage(WorkerId worker, const wire::Message& message) override {
    uint64_t number = 0;
    if (const auto* slot = std::get_if<wire::SlotDone>(&message.body)) {
      number = slot->slot;
    } else if (const auto* op = std::get_if<wire::HostOpDone>(&message.body)) {
      number = op->operation;
    }
    Tell(absl::StrCat("done ", Number(worker), " ", number), "");
  }
  void OnWorkerDown(WorkerId worker, const std::string& why) override {
    Tell(absl::StrCat("down ", Number(worker)), why);
  }
  void OnStartFailed(WorkerId worker, const std::string& why) override {
    Tell(absl::StrCat("failed ", Number(worker)), why);
  }
  void OnDeviceLost(DeviceId device, const std::string& why) override {
    EXPECT_TRUE(pool_->gone(device));
    Tell(absl::StrCat("lost ", Number(device)), why);
  }

  // Runs the pool until a reaction calls End and every process is gone.
  // `ways` are those of the device worker's first, second ... process.
  void Run(std::deque<std::string> ways,
           std::function<void(const std::string&)> on_told) {
    options_.kill_at[kDeviceWorker] = std::move(ways);
    on_told_ = std::move(on_told);
    auto pool = ProcessPool::Create(*loop_, *arena_, options_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    ASSERT_TRUE(pool_->Start(this).ok());
    loop_->Run();
  }
  void End() {
    loop_->After(absl::ZeroDuration(), [this] {
      ended_ = true;
      pool_->Stop(kGrace, [this] { loop_->Quit(); });
    });
  }

  // Nothing is asked of the nursery, which has a limit of its own.
  bool AllUp() const {
    return pool_->up(kDeviceWorker) && pool_->up(pool_->HostWorker()) &&
           pool_->up(pool_->FilesWorker());
  }
  int Count(const std::string& what) const {
    return static_cast<int>(std::count(told_.begin(), told_.end(), what));
  }
  // What was told of worker 0.
  std::vector<std::string> OfDevice() const {
    std::vector<std::string> found;
    for (const std::string& told : told_) {
      const std::vector<std::string> words = {"up 0", "down 0", "failed 0",
                                              "lost 0"};
      if (absl::StartsWith(told, "done 0 ") ||
          std::find(words.begin(), words.end(), told) != words.end()) {
        found.push_back(told);
      }
    }
    return found;
  }

  uint64_t SendSlot(uint64_t number, ReplyHandler* handler = nullptr) {
    wire::RunSlot slot;
    slot.slot = number;
    return pool_->Send(kDeviceWorker, slot, handler);
  }

  ManualClock clock_{SystemClock()};
  ProcessPoolOptions options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<ProcessPool> pool_;
  std::vector<std::string> told_;
  std::string last_why_;
  bool ended_ = false;

  std::function<void(const std::string&)> on_told_;

 private:
  void Tell(const std::string& what, const std::string& why) {
    EXPECT_FALSE(ended_) << what << " after Stop";
    told_.push_back(what);
    if (!why.empty()) last_why_ = why;
    on_told_(what);
  }
};

TEST_F(PoolTest, CommandsAreAnsweredUnderRisingAttempts) {
  std::vector<uint64_t> attempts;
  Run({}, [&](const std::string& told) {
    if (told == "up 0") {
      for (uint64_t slot = 1; slot <= 20; ++slot) {
        attempts.push_back(SendSlot(slot));
      }
    }
    if (told == "up 1") {
      wire::HostOp op;
      op.operation = 5;
      EXPECT_NE(pool_->Send(kHostWorker, op), 0u);
    }
    if (Count("done 0 20") + Count("done 1 5") == 2) End();
  });
  EXPECT_TRUE(std::is_sorted(attempts.begin(), attempts.end()));
  EXPECT_EQ(std::adjacent_find(attempts.begin(), attempts.end()),
            attempts.end());
  EXPECT_GT(attempts.front(), 0u);
  for (int slot = 1; slot <= 20; ++slot) {
    EXPECT_EQ(Count(absl::StrCat("done 0 ", slot)), 1) << slot;
  }
}

// Keeps what it is told: "done 1", "lost 2", by the slot's number.
class SlotHandler final : public ReplyHandler {
 public:
  explicit SlotHandler(std::vector<std::string>* told) : told_(told) {}
  void Sent(uint64_t attempt, uint64_t slot) { slots_[attempt] = slot; }
  void OnReply(WorkerId, const wire::Message& reply) override {
    EXPECT_TRUE(EndsCommand(reply.body));
    const uint64_t slot = std::get<wire::SlotDone>(reply.body).slot;
    EXPECT_EQ(slots_.at(reply.attempt), slot);
    told_->push_back(absl::StrCat("done ", slot));
  }
  void OnLost(WorkerId worker, uint64_t attempt,
              const std::string& why) override {
    EXPECT_EQ(worker, kDeviceWorker);
    EXPECT_NE(why, "");
    told_->push_back(absl::StrCat("lost ", slots_.at(attempt)));
  }

 private:
  std::map<uint64_t, uint64_t> slots_;  // by attempt
  std::vector<std::string>* const told_;
};

TEST_F(PoolTest, WhoSentACommandIsToldOfItsAnswer) {
  std::vector<std::string> odd, even;
  SlotHandler odd_handler(&odd), even_handler(&even);
  Run({}, [&](const std::string& told) {
    if (told == "up 0") {
      for (uint64_t slot = 1; slot <= 6; ++slot) {
        SlotHandler& handler = slot % 2 == 0 ? even_handler : odd_handler;
        handler.Sent(SendSlot(slot, &handler), slot);
      }
      SendSlot(7);  // nobody's
    }
    if (Count("done 0 7") == 1) End();
  });
  EXPECT_EQ(odd, (std::vector<std::string>{"done 1", "done 3", "done 5"}));
  EXPECT_EQ(even, (std::vector<std::string>{"done 2", "done 4", "done 6"}));
}

TEST_F(PoolTest, CommandsThatDieAreToldBeforeTheDeath) {
  std::vector<std::string> heard, forgotten;
  SlotHandler handler(&heard), gone(&forgotten);
  Run({"die"}, [&](const std::string& told) {
    if (told == "up 0" && Count("up 0") == 1) {
      for (const uint64_t slot : {1, 2}) {
        handler.Sent(SendSlot(slot, &handler), slot);
      }
      SendSlot(3, &gone);
      pool_->Forget(&gone);
    }
    if (told == "down 0") {
      EXPECT_EQ(heard, (std::vector<std::string>{"lost 1", "lost 2"}));
      End();
    }
  });
  EXPECT_EQ(heard.size(), 2u);
  EXPECT_TRUE(forgotten.empty());
}

// Long enough for a device to be lost, were each try a death of its worker.
TEST_F(PoolTest, WithoutDescriptorsItTriesAgainAndLosesNoDevice) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit few = before;
  few.rlim_cur = next + 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::function<void(int)> wait = [&](int tries) {
    EXPECT_TRUE(told_.empty());
    if (tries == 0) {
      EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
      return;
    }
    loop_->After(2 * options_.restart_delay, [&, tries] { wait(tries - 1); });
  };
  loop_->After(absl::ZeroDuration(), [&] { wait(3 * kMaxFruitlessDeaths); });
  Run({}, [&](const std::string&) {
    if (Count("up 0") + Count("up 1") + Count("up 2") == 3) End();
  });
  EXPECT_EQ(told_.size(), 3u);
}

TEST_F(PoolTest, NothingIsSentToAWorkerThatIsNotUp) {
  bool tried = false;
  Run({"die-at-start"}, [&](const std::string& told) {
    if (!tried) {
      tried = true;
      EXPECT_EQ(SendSlot(1) != 0, pool_->up(kDeviceWorker));
    }
    if (told == "up 0") End();
  });
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, 2);
}

// The answer lies in the socket of a process that died with unread mail, which
// resets the connection: it counts, and before the death.
TEST_F(PoolTest, AnAnswerFoundInADeadWorkersSocketCounts) {
  for (int round = 0; round < 10; ++round) {
    options_ = {};
    options_.worker_program = kFakeWorker;
    loop_ = *EventLoop::Create();
    told_.clear();
    ended_ = false;
    Run({"answer-and-die"}, [&](const std::string& told) {
      if (told == "up 0" && Count("up 0") == 1) {
        SendSlot(1);
        SendSlot(2);
      }
      if (told == "up 0" && Count("up 0") == 2) End();
    });
    EXPECT_EQ(OfDevice(),
              (std::vector<std::string>{"up 0", "done 0 1", "down 0", "up 0"}));
    EXPECT_NE(last_why_.find("device worker 0 killed by signal 9"),
              std::string::npos)
        << last_why_;
    pool_.reset();
  }
}

// Between the end of the socket and the end of the process the worker still
// counts as up: commands to it are lost with it and stop nobody.
TEST_F(PoolTest, CommandsToADyingWorkerAreLostWithIt) {
  int sent = 0;
  Run({"die", "die", "die"}, [&](const std::string& told) {
    if (told == "up 0" && Count("up 0") == 4) {
      End();
      return;
    }
    if (told == "up 0") {
      std::function<void()> again = [&] {
        if (!pool_->up(kDeviceWorker) || Count("up 0") == 4) return;
        SendSlot(static_cast<uint64_t>(++sent));
      };
      for (int i = 0; i < 200; ++i) {
        loop_->After(absl::Microseconds(20 * i), again);
      }
    }
  });
  EXPECT_EQ(Count("down 0"), 3);
  EXPECT_EQ(Count("lost 0"), 0);
}

TEST_F(PoolTest, ADeviceIsLostAfterFiveFruitlessDeaths) {
  Run(std::deque<std::string>(kMaxFruitlessDeaths, "die-at-start"),
      [&](const std::string& told) {
        if (told == "lost 0") End();
      });
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, kMaxFruitlessDeaths);
  // Never up, so never down.
  EXPECT_EQ(OfDevice(),
            (std::vector<std::string>{"failed 0", "failed 0", "failed 0",
                                      "failed 0", "failed 0", "lost 0"}));
  EXPECT_NE(last_why_.find("exited with status 7; its last words:\n"
                           "no such device"),
            std::string::npos)
      << last_why_;
}

TEST_F(PoolTest, AnAnswerInBetweenForgivesEarlierDeaths) {
  const int deaths = 2 * kMaxFruitlessDeaths;
  std::deque<std::string> ways;
  for (int i = 0; i < deaths; ++i) {
    ways.push_back(i % 2 == 0 ? "die-at-start" : "answer-and-die");
  }
  Run(ways, [&](const std::string& told) {
    if (told == "lost 0") End();
    if (told != "up 0") return;
    if (pool_->info(kDeviceWorker).starts == deaths + 1) {
      End();
    } else {
      SendSlot(1);
      SendSlot(2);
    }
  });
  EXPECT_EQ(Count("lost 0"), 0);
  EXPECT_EQ(Count("done 0 1"), kMaxFruitlessDeaths);
}

TEST_F(PoolTest, ASilentWorkerIsKilled) {
  std::string why;
  Run({"silent"}, [&](const std::string& told) {
    // Fakes send no heartbeats: all have fallen silent.
    if (AllUp() && told_.size() == 3) {
      clock_.Advance(options_.heartbeat_limit + absl::Milliseconds(1));
    }
    if (told != "down 0" || Count(told) > 1) return;
    why = last_why_;
    End();
  });
  EXPECT_EQ(why,
            "device worker 0 killed by signal 9: it has been silent for 30s");
}

// It says that it lives; its computation is in a call that never returns.
TEST_F(PoolTest, ASuspectedWorkerThatShowsNothingOfItsWorkIsKilled) {
  options_.heartbeat_limit = absl::Hours(1);
  std::string why;
  Run({"stuck"}, [&](const std::string& told) {
    if (AllUp() && told_.size() == 3) {
      SendSlot(1);
      pool_->Suspect(DeviceId(0), "GPU 3: GPU is lost");
      clock_.Advance(options_.suspect_limit + absl::Milliseconds(1));
    }
    if (told != "down 0") return;
    why = last_why_;
    End();
  });
  EXPECT_EQ(why,
            "device worker 0 killed by signal 9: GPU 3: GPU is lost, and "
            "nothing came of its work for 2m");
}

TEST_F(PoolTest, ASuspectedWorkerWithoutWorkOrThatGoesOnIsNot) {
  options_.heartbeat_limit = absl::Hours(1);
  const absl::Duration longer = 2 * options_.suspect_limit;
  Run({}, [&](const std::string& told) {
    if (AllUp() && told_.size() == 3) {
      pool_->Suspect(DeviceId(0), "Xid 13");
      clock_.Advance(longer);
      // It is looked at before: that was due earlier.
      loop_->After(absl::ZeroDuration(), [this] { SendSlot(1); });
    }
    if (told == "done 0 1") {
      // What it has from now on is no reason: it is trusted again.
      clock_.Advance(longer);
      SendSlot(2);
      clock_.Advance(longer);
    }
    if (told == "done 0 2") End();
  });
  EXPECT_EQ(OfDevice(),
            (std::vector<std::string>{"up 0", "done 0 1", "done 0 2"}));
}

// A driver that hangs while it is initialised.  The host's and the files worker
// are as short of time; what becomes of them is not looked at.
TEST_F(PoolTest, AWorkerThatNeverSaysHelloIsKilledAsOneThatFailedToStart) {
  options_.start_limit = absl::Milliseconds(100);
  std::string why_failed, why_lost;
  Run(std::deque<std::string>(kMaxFruitlessDeaths, "never-up"),
      [&](const std::string& told) {
        if (told == "failed 0") why_failed = last_why_;
        if (told != "lost 0") return;
        why_lost = last_why_;
        End();
      });
  EXPECT_EQ(OfDevice(),
            (std::vector<std::string>{"failed 0", "failed 0", "failed 0",
                                      "failed 0", "failed 0", "lost 0"}));
  EXPECT_EQ(why_failed,
            "device worker 0 killed by signal 9: it did not start within "
            "100ms");
  EXPECT_EQ(why_lost, why_failed);
}

TEST_F(PoolTest, AStartMayTakeLongerThanASilence) {
  // The others are up before it.
  Run({"slow-start"}, [&](const std::string& told) {
    if (told == "up 0") return End();
    if (told_.size() == 2) clock_.Advance(2 * options_.heartbeat_limit);
  });
  EXPECT_EQ(OfDevice(), std::vector<std::string>{"up 0"});
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, 1);
}

TEST_F(PoolTest, WhatAWorkerHasPinnedIsKnownUntilItDies) {
  Run({"pins"}, [&](const std::string& told) {
    const uint64_t pinned = pool_->info(kDeviceWorker).pinned_bytes;
    if (told == "up 0" && Count(told) == 1) {
      EXPECT_EQ(pinned, 0u);
      SendSlot(1);
    } else if (told == "done 0 1") {
      EXPECT_EQ(pinned, 4096u);
      kill(pool_->info(kDeviceWorker).pid, SIGKILL);
    } else if (told == "down 0") {
      EXPECT_EQ(pinned, 0u);
      End();
    }
  });
  EXPECT_EQ(OfDevice(),
            (std::vector<std::string>{"up 0", "done 0 1", "down 0"}));
}

TEST_F(PoolTest, AWorkerThatSpeaksNonsenseIsKilled) {
  Run({"babble"}, [&](const std::string& told) {
    if (told == "down 0") End();
  });
  EXPECT_EQ(OfDevice(), (std::vector<std::string>{"up 0", "down 0"}));
  EXPECT_NE(last_why_.find("killed by signal 9"), std::string::npos);
}

TEST_F(PoolTest, StopKillsWhoDoesNotStop) {
  Run({"deaf"}, [&](const std::string& told) {
    if (told != "up 0") return;
    End();
    loop_->After(absl::ZeroDuration(), [this] { clock_.Advance(kGrace); });
  });
  EXPECT_EQ(Count("down 0"), 0);  // nobody is told of deaths any more
}

TEST_F(PoolTest, WithdrawWritesTheCancelWordOfTheAttempt) {
  uint64_t attempt = 0;
  Run({}, [&](const std::string& told) {
    if (told != "up 0") return;
    attempt = SendSlot(1);
    pool_->Withdraw(DeviceId{0}, attempt);
    End();
  });
  const wire::Doorbell& bell = arena_->arena().doorbells().bell[0];
  EXPECT_TRUE(wire::Cancelled(bell, attempt));
  EXPECT_FALSE(wire::Cancelled(bell, attempt + 1));
}

TEST_F(PoolTest, ADeviceThatCannotBeIsNotStartedAgain) {
  std::string why;
  options_.on_unable = [&](const std::string& text) {
    why = text;
    End();
  };
  Run({"unable"}, [](const std::string&) {});
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, 1);
  EXPECT_EQ(OfDevice(), std::vector<std::string>());
  EXPECT_EQ(why,
            "device worker 0 exited with status 2; its last words:\n"
            "no driver\n");
}

// The GPU was there, and may be again.
TEST_F(PoolTest, OneThatWasUpBeforeIs) {
  options_.on_unable = [](const std::string& why) { FAIL() << why; };
  Run({"die", "unable"}, [&](const std::string& told) {
    if (told == "up 0") SendSlot(1);
    if (told == "up 0" && Count("up 0") == 2) End();
  });
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, 3);
}

// Where this process may; the host worker computes.
TEST_F(PoolTest, DeviceWorkersMayGoBeforeCompute) {
  bool permitted = false;
  std::thread([&permitted] {
    permitted = PutBeforeCompute(0, DispatchThread::kWorker).ok();
  }).join();
  for (const bool before : {false, true}) {
    pool_.reset();
    loop_ = *EventLoop::Create();
    ended_ = false;
    options_.before_compute = before;
    int policies = 0;
    Run({}, [&](const std::string& told) {
      if (told != "up 0" && told != "up 1") return;
      const bool device = told == "up 0";
      const int policy = sched_getscheduler(
          pool_->info(device ? kDeviceWorker : kHostWorker).pid);
      EXPECT_EQ((policy & ~SCHED_RESET_ON_FORK) == SCHED_RR,
                device && before && permitted)
          << told;
      if (++policies == 2) End();
    });
    EXPECT_EQ(policies, 2);
  }
}

TEST_F(PoolTest, ADeviceIsACpuOrItsGpu) {
  const auto tell_arguments = [&] {
    Run({"tell-arguments"}, [&](const std::string& told) {
      if (told == "down 0") End();
    });
  };
  tell_arguments();
  EXPECT_TRUE(absl::StrContains(last_why_, " --device=cpu ")) << last_why_;
  EXPECT_FALSE(absl::StrContains(last_why_, "cuda")) << last_why_;
  pool_.reset();
  loop_ = *EventLoop::Create();
  ended_ = false;
  wire::Gpu gpu;
  gpu.uuid = "GPU-a";
  options_.gpus = {gpu};
  tell_arguments();
  EXPECT_TRUE(absl::StrContains(
      last_why_, " --device=cuda:0 --cuda-visible-devices=GPU-a "))
      << last_why_;
  EXPECT_FALSE(absl::StrContains(last_why_, "numa-node")) << last_why_;
  EXPECT_FALSE(absl::StrContains(last_why_, "peers")) << last_why_;
  pool_.reset();
  loop_ = *EventLoop::Create();
  ended_ = false;
  options_.gpus[0].numa_node = 1;
  options_.peers = true;
  tell_arguments();
  EXPECT_TRUE(absl::StrContains(last_why_, "=GPU-a --numa-node=1 "))
      << last_why_;
  EXPECT_TRUE(absl::StrContains(last_why_, " --peers")) << last_why_;
}

constexpr DeviceId kDevice{0};

TEST_F(PoolTest, ADeviceThatIsTakenOutHasNoProcessUntilItIsBroughtBack) {
  Run({}, [&](const std::string& told) {
    if (told == "up 0" && Count("up 0") == 1) {
      pool_->TakeOut(kDevice, "lent to anna");
    } else if (told == "lost 0") {
      EXPECT_EQ(last_why_, "lent to anna");
      EXPECT_EQ(pool_->info(kDeviceWorker).pid, 0);
      EXPECT_EQ(pool_->info(kDeviceWorker).starts, 1);
      pool_->BringBack(kDevice);
      EXPECT_FALSE(pool_->gone(kDevice));
    } else if (told == "up 0") {
      End();
    }
  });
  EXPECT_EQ(OfDevice(),
            (std::vector<std::string>{"up 0", "down 0", "lost 0", "up 0"}));
}

// Whether or not its process was there by then.
TEST_F(PoolTest, OneThatIsTakenOutAsItStartsIsTold) {
  Run({}, [&](const std::string& told) {
    if (Count("up 1") + Count("up 2") == 1) {
      pool_->TakeOut(kDevice, "fenced");
    }
    if (told == "lost 0") End();
  });
  EXPECT_FALSE(pool_->up(kDeviceWorker));
  EXPECT_EQ(OfDevice().back(), "lost 0");
}

TEST_F(PoolTest, WhatIsTakenOutBeforeTheStartIsNotStarted) {
  pool_ = *ProcessPool::Create(*loop_, *arena_, options_);
  pool_->TakeOut(kDevice, "lent to anna");
  on_told_ = [&](const std::string&) {
    if (Count("lost 0") + Count("up 1") + Count("up 2") == 3) End();
  };
  ASSERT_TRUE(pool_->Start(this).ok());
  loop_->Run();
  EXPECT_EQ(OfDevice(), std::vector<std::string>{"lost 0"});
  EXPECT_EQ(pool_->info(kDeviceWorker).starts, 0);
}

TEST_F(PoolTest, OneThatIsBroughtBackWhileItEndsIsStartedAtOnce) {
  options_.patient_delay = absl::Hours(1);
  Run({}, [&](const std::string& told) {
    if (told != "up 0") return;
    if (Count("up 0") == 2) return End();
    pool_->TakeOut(kDevice, "lent to anna");
    pool_->BringBack(kDevice);
  });
  EXPECT_EQ(OfDevice(), (std::vector<std::string>{"up 0", "down 0", "up 0"}));
}

TEST_F(PoolTest, OneThatDoesNotStopIsKilledWhenItIsTakenOut) {
  Run({"deaf"}, [&](const std::string& told) {
    if (told == "up 0") {
      pool_->TakeOut(kDevice, "lent to anna");
      loop_->After(absl::ZeroDuration(),
                   [this] { clock_.Advance(absl::Seconds(1)); });
    }
    if (told == "lost 0") End();
  });
  EXPECT_EQ(OfDevice(), (std::vector<std::string>{"up 0", "down 0", "lost 0"}));
}

// Somebody has its memory for longer than he said.
TEST_F(PoolTest, OneThatIsBroughtBackIsTriedUntilItIsUp) {
  options_.patient_delay = absl::Milliseconds(1);
  const int deaths = 2 * kMaxFruitlessDeaths;
  options_.on_unable = [](const std::string& why) { FAIL() << why; };
  options_.kill_at[kDeviceWorker] =
      std::deque<std::string>(deaths, "die-at-start");
  options_.kill_at[kDeviceWorker].push_front("unable");
  pool_ = *ProcessPool::Create(*loop_, *arena_, options_);
  pool_->TakeOut(kDevice, "lent to anna");
  on_told_ = [&](const std::string& told) {
    if (told == "lost 0") pool_->BringBack(kDevice);
    if (told == "up 0") End();
  };
  ASSERT_TRUE(pool_->Start(this).ok());
  loop_->Run();
  EXPECT_EQ(Count("lost 0"), 1);
  EXPECT_EQ(Count("failed 0"), deaths + 1);
}

TEST_F(PoolTest, ALostDeviceIsStartedAgainWhenItIsBroughtBack) {
  Run(std::deque<std::string>(kMaxFruitlessDeaths, "die-at-start"),
      [&](const std::string& told) {
        if (told == "lost 0") {
          EXPECT_TRUE(pool_->info(kDeviceWorker).lost);
          pool_->BringBack(kDevice);
        }
        if (told == "up 0") End();
      });
  EXPECT_EQ(Count("lost 0"), 1);
  EXPECT_FALSE(pool_->info(kDeviceWorker).lost);
}

TEST_F(PoolTest, AMissingProgramIsNamed) {
  options_.worker_program = "/no/such/program";
  auto pool = ProcessPool::Create(*loop_, *arena_, options_);
  ASSERT_TRUE(pool.ok());
  const absl::Status status = (*pool)->Start(this);
  EXPECT_NE(std::string(status.message()).find("/no/such/program"),
            std::string::npos)
      << status;
}

TEST(ProcessPoolOptionsTest, TooManyDevicesAreRefused) {
  auto loop = *EventLoop::Create();
  auto arena = *HostArena::Create(1 << 20, 3);
  ProcessPoolOptions options;
  options.device_count = wire::kMaxWorkers - 1;
  EXPECT_EQ(ProcessPool::Create(*loop, *arena, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace roundhouse
