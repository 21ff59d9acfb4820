#include "server/steps/step_book.h"

#include "absl/strings/match.h"
#include "server/run/plan_adviser.h"
#include "server/steps/step_maker.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class FakeTelemetry : public StepTelemetry {
 public:
  void OnSlotSent(uint64_t, const RunSlotAction&, int64_t) override { ++sent; }
  void OnSlotCommand(wire::RunSlot&) override { ++commands; }
  void OnDispatchLatency(double) override {}
  void OnUrgentBegins(double seconds) override { urgent.push_back(seconds); }
  void OnSlot(DeviceId, SlotKind, const wire::SlotDone&) override { ++done; }
  void OnSlotReplayed(DeviceId) override { ++replayed; }
  void OnSlotFailed(DeviceId) override { ++failed; }
  void OnHostOp(const HostOpTimes&) override { ++host_ops; }
  void OnUnitUpdated(double) override { ++updated; }
  void OnSumExchanges(int64_t, int64_t) override {}
  void OnStepDone(int64_t step) override { steps.push_back(step); }
  void OnRecovered(DeviceId, double) override { ++recovered; }

  int sent = 0, commands = 0, done = 0, replayed = 0, failed = 0;
  int host_ops = 0, updated = 0, recovered = 0;
  std::vector<int64_t> steps;
  std::vector<double> urgent;
};

class StepBookTest : public JobPartsTest, private StepBook::Owner {
 protected:
  // Steps until `last` are done.
  void Steps(int64_t last) {
    last_ = last;
    Prepare("max_steps: 9\nmax_grad_norm: 1");
    Allocate();
    adviser_ = std::make_unique<PlanAdviser>(
        PlanAdviser::Surroundings{*pool_, dispatch_->dispatcher(), *background_,
                                  *memory_},
        *options_,
        PlanAdviser::Calls{[] { return false; }, [](const std::string&) {}});
    maker_ =
        std::make_unique<StepMaker>(options_->spec, *train_, validation_.get());
    book_ = std::make_unique<StepBook>(
        StepBook::Surroundings{*pool_, *dispatch_, *memory_, telemetry_, *this},
        JobId{3}, JobOwner{}, priority_);
    on_worker_up_ = [this](WorkerId worker) {
      if (memory_->allocated()) book_->Configure(worker);
    };
    memory_->RaiseVersions(maker_->FirstVersion());
    Run([this] {
      book_->Open(*adviser_);
      EXPECT_TRUE(book_->open());
      EXPECT_TRUE(book_->idle());
      BeginStep(1);
    });
    EXPECT_FALSE(book_->open());
  }
  void BeginStep(int64_t step) {
    StepEntry entry =
        maker_->Train(step, memory_->buffers().options().micro_batches);
    entry.unit_norms.assign(memory_->state().units().size(), 0.0);
    entry.unit_ns.assign(memory_->state().units().size(), 0);
    StepSpec spec;
    spec.step = static_cast<uint64_t>(step);
    spec.clip = true;
    spec.plan = memory_->plan();
    spec.groups = static_cast<int>(options_->spec.gradient_groups());
    for (const RoundData& round : entry.data.rounds) {
      spec.round_micro_batches.push_back(
          static_cast<int>(round.micro_batches.size()));
    }
    spec.blocks = memory_->buffers().contributions().blocks();
    spec.boundary_blocks = memory_->buffers().block_count();
    const uint64_t number = book_->Enter(std::move(entry));
    book_->HoldForNextSave();
    book_->Begin(number, spec);
    EXPECT_FALSE(book_->idle());
  }
  void CloseAndEnd() {
    book_->Publish();
    book_->Close();
    book_->Close();  // no effect, but for workers' hearing it twice
    End();
  }
  // StepBook::Owner
  void OnStepReduced(uint64_t number, StepEntry& entry) override {
    for (const double norm : entry.unit_norms) EXPECT_GT(norm, 0);
    EXPECT_TRUE(SumLoss(entry).finite);
    seen_.push_back(absl::StrCat("reduced ", entry.data.step));
    book_->ReportStep({.step = entry.data.step});
    if (on_reduced_) on_reduced_();
    dispatch_->dispatcher().AllowUpdates(JobId{3}, number);
  }
  void OnStepDone(const StepEntry& entry) override {
    seen_.push_back(absl::StrCat("done ", entry.data.step));
    if (entry.data.step < last_) return BeginStep(entry.data.step + 1);
    EXPECT_TRUE(book_->idle());
    CloseAndEnd();
  }
  void OnQuiet() override {
    seen_.push_back("quiet");
    CloseAndEnd();
  }
  void OnLossNotFinite(const StepEntry& entry) override {
    seen_.push_back(absl::StrCat("not finite ", entry.data.step));
    Abandon();
  }
  void OnWorkerFailed(JobReason reason, const std::string& text) override {
    seen_.push_back(absl::StrCat(JobReasonName(reason), " ", text));
    Abandon();
  }
  void OnStep(const StepReport& report) override {
    seen_.push_back(absl::StrCat("told ", report.step));
  }
  void Abandon() {
    if (std::exchange(abandoned_, true)) return;
    dispatch_->dispatcher().Abandon(JobId{3});
    dispatch_->CarryOut();
  }

  int64_t last_ = 0;
  std::unique_ptr<PlanAdviser> adviser_;
  std::unique_ptr<StepMaker> maker_;
  FakeTelemetry telemetry_;
  Priority priority_ = Priority::kNormal;
  std::unique_ptr<StepBook> book_;
  std::function<void()> on_reduced_;
  bool abandoned_ = false;
  int sent_when_held_ = 0;
  std::vector<std::string> seen_;
};

TEST_F(StepBookTest, StepsAreReducedToldAndDoneInTheirOrder) {
  Steps(2);
  EXPECT_EQ(seen_, (std::vector<std::string>{"reduced 1", "told 1", "done 1",
                                             "reduced 2", "told 2", "done 2"}));
  EXPECT_GT(telemetry_.sent, 0);
  EXPECT_EQ(telemetry_.sent, telemetry_.commands);
  EXPECT_EQ(telemetry_.done, telemetry_.sent);
  EXPECT_EQ(telemetry_.steps, (std::vector<int64_t>{1, 2}));
  // Each unit once a step.
  EXPECT_EQ(telemetry_.updated, 2 * 5);
  EXPECT_EQ(telemetry_.replayed + telemetry_.failed, 0);
}

TEST_F(StepBookTest, WhatAWorkerDiedWithIsSentAgain) {
  Misbehave(0, "die");  // at its first command, which is Configure
  Steps(1);
  EXPECT_EQ(seen_.back(), "done 1");
  EXPECT_EQ(telemetry_.sent - telemetry_.replayed, telemetry_.done);
}

TEST_F(StepBookTest, ALossThatIsNotFiniteIsTheOwners) {
  Misbehave(0, "nan");
  Misbehave(1, "nan");
  Steps(1);
  ASSERT_FALSE(seen_.empty());
  EXPECT_EQ(seen_.front(), "not finite 1");
  EXPECT_EQ(seen_.back(), "quiet");
}

TEST_F(StepBookTest, ASlotThatFailsIsTheOwnersAndIsNotWaitedFor) {
  Misbehave(0, "fail");
  Misbehave(1, "fail");
  Steps(1);
  ASSERT_FALSE(seen_.empty());
  EXPECT_TRUE(absl::StartsWith(seen_.front(), "DEVICE_MEMORY device "))
      << seen_.front();
  EXPECT_EQ(seen_.back(), "quiet");
  EXPECT_GT(telemetry_.failed, 0);
}

TEST_F(StepBookTest, AHostOperationThatFailsIsTheOwners) {
  Misbehave(kDevices, "fail");
  Steps(1);
  ASSERT_FALSE(seen_.empty());
  EXPECT_TRUE(absl::StartsWith(seen_.front(), "INTERNAL host worker: "))
      << seen_.front();
}

TEST_F(StepBookTest, SlotsThatAreHeldAreSentWhenTheyAreNot) {
  on_reduced_ = [this] {
    on_reduced_ = nullptr;
    book_->HoldSlots(StartedSlots::kWithdrawn);
    loop_->After(absl::ZeroDuration(), [this] {
      sent_when_held_ = telemetry_.sent;
      loop_->After(absl::ZeroDuration(), [this] {
        EXPECT_EQ(telemetry_.sent, sent_when_held_);
        book_->ReleaseSlots();
        dispatch_->CarryOut();
      });
    });
  };
  Steps(2);
  EXPECT_EQ(seen_.back(), "done 2");
  EXPECT_TRUE(telemetry_.urgent.empty());
}

// As it begins, as it goes on, and as it becomes urgent.
TEST_F(StepBookTest, AnUrgentJobTellsHowLongItsNextSlotTook) {
  Misbehave(0, "tells");
  Misbehave(1, "tells");
  priority_ = Priority::kUrgent;
  on_reduced_ = [this] {
    on_reduced_ = [this] {
      on_reduced_ = nullptr;
      EXPECT_EQ(telemetry_.urgent.size(), 2u);
      book_->SetPriority(Priority::kUrgent);  // it is
      book_->SetPriority(Priority::kNormal);
      book_->SetPriority(Priority::kBackfill);
      book_->SetPriority(Priority::kUrgent);
    };
    EXPECT_EQ(telemetry_.urgent.size(), 1u);
    book_->HoldSlots(StartedSlots::kEnd);
    loop_->After(absl::ZeroDuration(), [this] {
      book_->ReleaseSlots();
      dispatch_->CarryOut();
    });
  };
  Steps(4);
  EXPECT_EQ(seen_.back(), "done 4");
  EXPECT_EQ(telemetry_.urgent.size(), 3u);
  for (const double seconds : telemetry_.urgent) EXPECT_GE(seconds, 0);
}

}  // namespace
}  // namespace roundhouse
