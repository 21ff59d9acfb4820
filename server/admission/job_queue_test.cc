#include "server/admission/job_queue.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

std::vector<std::string> Ids(const JobQueue& queue) {
  std::vector<std::string> ids;
  for (const JobQueue::Queued& job : queue.jobs()) ids.push_back(job.id);
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
  EXPECT_EQ(queue.First(any)->id, "job-7");
  EXPECT_EQ(queue.First(any)->since, kNow);
  const auto later = [](const JobQueue::Queued& job) {
    return job.id != "job-7";
  };
  EXPECT_EQ(queue.First(later)->id, "job-9");
  EXPECT_EQ(JobQueue().First(any), nullptr);
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

TEST(JobQueueTest, AJobWhosePriorityChangesComesWhereItWouldHaveBeen) {
  JobQueue queue;
  for (const char* id : {"job-4", "job-5", "job-6"}) queue.Add({id, kNow});
  queue.SetPriority("job-6", Priority::kUrgent);
  queue.SetPriority("job-5", Priority::kUrgent);
  queue.SetPriority("job-9", Priority::kUrgent);  // is not here
  EXPECT_EQ(Ids(queue), (Strings{"job-5", "job-6", "job-4"}));
  EXPECT_EQ(queue.jobs()[1].since, kNow);
  queue.SetPriority("job-5", Priority::kNormal);
  EXPECT_EQ(Ids(queue), (Strings{"job-6", "job-4", "job-5"}));
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
