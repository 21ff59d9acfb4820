#include "server/workers/work_watch.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(9);
constexpr int64_t kSuspectedNs = 1'000'000'000'000;
// The first moment that is too late.
constexpr int64_t kLateNs = kSuspectedNs + 9'000'000'001;

WorkWatch Suspected() {
  WorkWatch watch;
  watch.NoteSent(7, wire::RunSlot{});
  watch.Suspect(kSuspectedNs, "Xid 79");
  return watch;
}

TEST(WorkWatchTest, OnlyASuspectWithWorkIsStuck) {
  WorkWatch watch;
  watch.NoteSent(7, wire::RunSlot{});
  EXPECT_EQ(watch.Stuck(kLateNs, kLimit), "");
  watch.Suspect(kSuspectedNs, "Xid 79");
  watch.Suspect(kSuspectedNs + 1, "GPU is lost");
  EXPECT_EQ(watch.Stuck(kLateNs - 1, kLimit), "");
  EXPECT_EQ(watch.Stuck(kLateNs, kLimit),
            "Xid 79, and nothing came of its work for 9s");
}

TEST(WorkWatchTest, WhatWasDoneSinceEndsTheSuspicion) {
  WorkWatch watch = Suspected();
  wire::MicroBatchDone done;
  done.time_ns = kSuspectedNs - 1;
  watch.NoteHeard(kLateNs, {7, done});
  EXPECT_NE(watch.Stuck(kLateNs, kLimit), "") << "done before";
  watch.NoteHeard(kLateNs, {7, wire::SlotStarted{.time_ns = kLateNs}});
  EXPECT_NE(watch.Stuck(kLateNs, kLimit), "")
      << "its input may have been there";
  done.time_ns = kSuspectedNs + 1;
  watch.NoteHeard(kLateNs, {7, done});
  EXPECT_EQ(watch.Stuck(kLateNs, kLimit), "");
}

// It does not say when.
TEST(WorkWatchTest, ASampleIsDoneWhenItIsHeard) {
  WorkWatch watch = Suspected();
  watch.NoteSent(8, wire::RunSample{});
  watch.NoteHeard(kSuspectedNs + 1, {8, wire::SampleDone{}});
  EXPECT_EQ(watch.Stuck(kLateNs, kLimit), "") << "slot 7 is still there";
}

TEST(WorkWatchTest, TimeWithoutWorkDoesNotCount) {
  for (const wire::Body& answer :
       {wire::Body(wire::Withdrawn{}), wire::Body(wire::Failed{})}) {
    WorkWatch watch = Suspected();
    watch.NoteHeard(kSuspectedNs + 1, {6, answer});
    EXPECT_NE(watch.Stuck(kLateNs, kLimit), "");
    watch.NoteHeard(kLateNs, {7, answer});
    EXPECT_EQ(watch.Stuck(kLateNs, kLimit), "");
    watch.NoteSent(8, wire::RunSlot{});
    EXPECT_EQ(watch.Stuck(kLateNs + 9'000'000'000, kLimit), "");
    EXPECT_NE(watch.Stuck(kLateNs + 9'000'000'001, kLimit), "");
  }
}

}  // namespace
}  // namespace roundhouse
