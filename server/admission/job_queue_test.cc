#include "server/admission/job_queue.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

// Nobody had anything.
JobQueue::Turn Equal(const JobOwner&) { return {}; }

std::vector<std::string> Ids(const JobQueue& queue,
                             const JobQueue::TurnOf& turn_of = Equal,
                             size_t most = 100) {
  std::vector<std::string> ids;
  for (const JobQueue::Queued* job : queue.InOrder(turn_of, most)) {
    ids.push_back(job->id);
  }
  return ids;
}

using Strings = std::vector<std::string>;

TEST(JobQueueTest, JobsComeInTheirOrderAndOneThatWaitedLongerGoesBetween) {
  JobQueue queue;
  queue.Add({"job-7", kNow});
  queue.Add({"job-12", kNow});
  queue.AddInOrder({"job-9", kNow});
  queue.AddInOrder({"job-13", kNow});
  EXPECT_EQ(Ids(queue), (Strings{"job-7", "job-9", "job-12", "job-13"}));
  const auto any = [](const JobQueue::Queued&) { return true; };
  EXPECT_EQ(queue.First(Equal, any)->id, "job-7");
  EXPECT_EQ(queue.First(Equal, any)->since, kNow);
  const auto later = [](const JobQueue::Queued& job) {
    return job.id != "job-7";
  };
  EXPECT_EQ(queue.First(Equal, later)->id, "job-9");
  EXPECT_EQ(JobQueue().First(Equal, any), nullptr);
  queue.Remove("job-9");
  EXPECT_EQ(Ids(queue), (Strings{"job-7", "job-12", "job-13"}));
}

TEST(JobQueueTest, UrgentJobsGoFirst) {
  JobQueue queue;
  queue.Add({"job-7", kNow});
  queue.Add({"job-8", kNow, Priority::kUrgent});
  queue.Add({"job-9", kNow, Priority::kUrgent});
  queue.AddInOrder({"job-3", kNow, Priority::kUrgent});
  queue.AddInOrder({"job-2", kNow});
  EXPECT_EQ(Ids(queue), (Strings{"job-3", "job-8", "job-9", "job-2", "job-7"}));
}

TEST(JobQueueTest, BackfillJobsGoLast) {
  JobQueue queue;
  queue.Add({"job-1", kNow, Priority::kBackfill});
  queue.Add({"job-2", kNow});
  queue.Add({"job-4", kNow, Priority::kBackfill});
  JobQueue::Queued ran = {"job-3", kNow, Priority::kBackfill};
  ran.ran = true;
  queue.AddInOrder(ran);
  queue.Add({"job-5", kNow, Priority::kUrgent});
  EXPECT_EQ(Ids(queue), (Strings{"job-5", "job-2", "job-3", "job-1", "job-4"}));
  queue.SetPriority("job-2", Priority::kBackfill);
  queue.SetPriority("job-4", Priority::kNormal);
  EXPECT_EQ(Ids(queue), (Strings{"job-5", "job-4", "job-3", "job-1", "job-2"}));
  const auto any = [](const JobQueue::Queued&) { return true; };
  queue.Remove("job-5");
  queue.Remove("job-4");
  EXPECT_EQ(queue.First(Equal, any)->id, "job-3") << "it gave way before";
}

TEST(JobQueueTest, AJobWhosePriorityChangesComesWhereItWouldHaveBeen) {
  JobQueue queue;
  for (const char* id : {"job-4", "job-5", "job-6"}) queue.Add({id, kNow});
  queue.SetPriority("job-6", Priority::kUrgent);
  queue.SetPriority("job-5", Priority::kUrgent);
  queue.SetPriority("job-9", Priority::kUrgent);  // is not here
  EXPECT_EQ(Ids(queue), (Strings{"job-5", "job-6", "job-4"}));
  EXPECT_EQ(queue.Find("job-6")->since, kNow);
  queue.SetPriority("job-5", Priority::kNormal);
  EXPECT_EQ(Ids(queue), (Strings{"job-6", "job-4", "job-5"}));
}

// Whoever had how much; of urgent ones those that did not run come first, too.
TEST(JobQueueTest, JobsThatRanAsAnEarlierDaemonEndedKeepTheirPlaces) {
  JobQueue queue;
  const JobOwner ann = {"vision", "ann"}, bob = {"vision", "bob"};
  const auto ran = [](const char* id, const JobOwner& owner) {
    JobQueue::Queued job = {id, kNow, Priority::kNormal, owner};
    job.ran = true;
    return job;
  };
  queue.Add({"job-2", kNow, Priority::kNormal, bob});
  queue.Add({"job-7", kNow, Priority::kUrgent, ann});
  queue.AddInOrder(ran("job-6", bob));
  queue.AddInOrder(ran("job-3", ann));
  queue.AddInOrder(ran("job-5", ann));
  queue.Add({"job-8", kNow, Priority::kNormal, ann});
  const auto turn_of = [](const JobOwner& owner) {
    return JobQueue::Turn{0, owner.user == "ann" ? 9.0 : 1.0};
  };
  const Strings order = {"job-7", "job-3", "job-5", "job-6", "job-2", "job-8"};
  EXPECT_EQ(Ids(queue, turn_of), order);
  EXPECT_EQ(queue.Owners().size(), 6u);
  for (const std::string& id : order) {
    const auto any = [](const JobQueue::Queued&) { return true; };
    EXPECT_EQ(queue.First(turn_of, any)->id, id);
    queue.Remove(id);
  }
}

TEST(JobQueueTest, WhoHadLeastGoesFirst) {
  JobQueue queue;
  const JobOwner ann = {"vision", "ann"}, bob = {"vision", "bob"};
  const JobOwner cid = {"speech", "cid"};
  queue.Add({"job-1", kNow, Priority::kNormal, ann});
  queue.Add({"job-2", kNow, Priority::kNormal, ann});
  queue.Add({"job-3", kNow, Priority::kNormal, bob});
  queue.Add({"job-4", kNow, Priority::kNormal, cid});
  queue.Add({"job-5", kNow, Priority::kUrgent, ann});
  queue.Add({"job-6", kNow, Priority::kNormal, bob});
  std::map<std::string, JobQueue::Turn> turns;
  int asked = 0;
  const JobQueue::TurnOf turn_of = [&](const JobOwner& owner) {
    ++asked;
    return turns[owner.user];
  };
  EXPECT_EQ(Ids(queue, turn_of),
            (Strings{"job-5", "job-1", "job-2", "job-3", "job-4", "job-6"}));
  EXPECT_EQ(asked, 3);
  turns = {{"ann", {5, 3}}, {"bob", {5, 2}}, {"cid", {4, 9}}};
  const Strings order = {"job-5", "job-4", "job-3", "job-6", "job-1", "job-2"};
  EXPECT_EQ(Ids(queue, turn_of), order);
  EXPECT_EQ(Ids(queue, turn_of, 3), (Strings{"job-5", "job-4", "job-3"}));
  // One after the other they go in this order.
  std::set<std::string> gone;
  for (const std::string& id : order) {
    const auto* const first =
        queue.First(turn_of, [&gone](const JobQueue::Queued& job) {
          return !gone.contains(job.id);
        });
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->id, id);
    gone.insert(id);
  }
  turns["cid"] = {6, 0};
  EXPECT_EQ(Ids(queue, turn_of, 2), (Strings{"job-5", "job-3"}));
  EXPECT_EQ(queue.Find("job-6")->owner.user, "bob");
  EXPECT_EQ(queue.Find("job-7"), nullptr);
}

TEST(JobQueueTest, WhatAJobWasPromisedFirstStays) {
  JobQueue queue;
  queue.Add({"job-1", kNow});
  queue.Promise("job-1", kNow + absl::Seconds(9));
  queue.Promise("job-1", kNow + absl::Seconds(99));
  queue.Promise("job-2", kNow);
  queue.SetPriority("job-1", Priority::kUrgent);
  EXPECT_EQ(queue.Find("job-1")->promised, kNow + absl::Seconds(9));
}

TEST(JobQueueTest, EachTryForRoomComesTwiceAsLateUpToALimit) {
  JobQueue queue;
  absl::Duration wait = kRetryUntaken;
  for (int i = 0; i < 12; ++i) {
    queue.WaitForRoom("job-1", kNow);
    EXPECT_FALSE(queue.IsDue("job-1", kNow + wait - absl::Seconds(1))) << i;
    EXPECT_TRUE(queue.IsDue("job-1", kNow + wait)) << i;
    wait = std::min(kMostRetryUntaken, 2 * wait);
  }
}

TEST(JobQueueTest, OneThatIsToldToGoOnIsNotDueAnyMore) {
  JobQueue queue;
  queue.WaitForRoomAgain("job-1", kNow);
  queue.WaitForRoomAgain("job-2", kNow);
  EXPECT_EQ(queue.WithoutRoom(), (Strings{"job-1", "job-2"}));
  queue.ForgetRoom("job-1");
  EXPECT_EQ(queue.WithoutRoom(), Strings{"job-2"});
  EXPECT_FALSE(queue.IsDue("job-1", kNow + absl::Hours(1)));
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace roundhouse
