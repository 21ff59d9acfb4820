#include "server/workers/work_watch.h"

#include "gtest/gtest.h"
#include "server/loop/event_loop.h"

namespace roundhouse {
namespace {

// Every wait is too long.
constexpr absl::Duration kNone = -absl::Seconds(1);

WorkWatch Suspected() {
  WorkWatch watch;
  watch.NoteSent(7, wire::RunSlot{});
  watch.Suspect("Xid 79");
  return watch;
}

TEST(WorkWatchTest, OnlyASuspectWithWorkIsStuck) {
  WorkWatch watch;
  watch.NoteSent(7, wire::RunSlot{});
  EXPECT_EQ(watch.Stuck(kNone), "");
  watch.Suspect("Xid 79");
  watch.Suspect("GPU is lost");
  EXPECT_EQ(watch.Stuck(kNone), "Xid 79, and nothing came of its work for -1s");
  EXPECT_EQ(watch.Stuck(absl::Hours(1)), "");
}

TEST(WorkWatchTest, WhatWasDoneSinceEndsTheSuspicion) {
  WorkWatch watch = Suspected();
  wire::MicroBatchDone done;
  done.time_ns = MonotonicNs() - 1'000'000'000;
  watch.NoteHeard({7, done});
  EXPECT_NE(watch.Stuck(kNone), "") << "done before";
  watch.NoteHeard({7, wire::SlotStarted{.time_ns = MonotonicNs()}});
  EXPECT_NE(watch.Stuck(kNone), "") << "its input may have been there";
  done.time_ns = MonotonicNs();
  watch.NoteHeard({7, done});
  EXPECT_EQ(watch.Stuck(kNone), "");
}

TEST(WorkWatchTest, TimeWithoutWorkDoesNotCount) {
  for (const wire::Body& answer :
       {wire::Body(wire::Withdrawn{}), wire::Body(wire::Failed{})}) {
    WorkWatch watch = Suspected();
    watch.NoteHeard({6, answer});
    EXPECT_NE(watch.Stuck(kNone), "");
    watch.NoteHeard({7, answer});
    EXPECT_EQ(watch.Stuck(absl::ZeroDuration()), "");
  }
}

}  // namespace
}  // namespace roundhouse
