// A day of a team that shares one server, as a list of jobs.  The same list is
// run by the daemon (server_day.h) and by queues of whole jobs (whole_jobs.h).
//
// What is drawn, and why it is plausible.  Published are Philly (Jeon et al.,
// "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
// Workloads", ATC 2019), Helios (Hu et al., "Characterization and Prediction of
// Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021) and PAI
// (Weng et al., "MLaaS in the Wild", NSDI 2022).
//
//   length     device time, in minutes of the whole pool: log-logistic with a
//              median of 4 and a shape of 1.25, between half a minute and three
//              hours.  All three have jobs of minutes in the main, and most
//              device time in few long ones.  Each day has one length of each
//              of as many equal parts of the distribution as it has jobs, so
//              that days differ in order and not in load.
//   model      small, middle or large, which decides a slot's length and host
//              memory: longer jobs are more often of larger models, as in
//              Philly and Helios large jobs run longer
//   arrival    a tenth of the rate at night, peaks at 10:00 and 15:00: all
//              three have the rhythm of a working day, Helios with a dip at
//              noon
//   user       the k-th of 12 in proportion to k^-0.7: few users have most
//              jobs (PAI).  Projects have every third user.
//   cancelled  one in eight, five minutes to an hour after its submission, if
//              it is still there: about as many were killed by users in Philly
//   urgent     3 jobs of two to six minutes, at noon
//   loan       one device, from 14:00 to 17:00
//
// Nobody pauses a job: a queue of whole jobs knows no such thing.
//
// Pure; the same for equal options.
#ifndef ROUNDHOUSE_TESTS_DAY_TEAM_DAY_H_
#define ROUNDHOUSE_TESTS_DAY_TEAM_DAY_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace roundhouse::day {

inline constexpr int kDevices = 8;
inline constexpr int kUsers = 12;
inline constexpr int kProjects = 3;

enum class DayModel { kSmall, kMiddle, kLarge };
inline constexpr int kDayModelCount = 3;

// Times are since midnight.
struct DayJob {
  absl::Duration submitted;
  int user = 0;
  DayModel model = DayModel::kSmall;
  int64_t steps = 0;
  bool urgent = false;
  // Its user gives it up then, if it is still there.
  absl::Duration cancelled = absl::InfiniteDuration();
};

struct DayLoan {
  int device = 0;
  absl::Duration from;
  absl::Duration until;
};

struct TeamDay {
  std::vector<DayJob> jobs;  // as they are submitted
  DayLoan loan;
};

struct TeamDayOptions {
  uint64_t seed = 1;
  int jobs = 72;  // that are not urgent
  int urgent_jobs = 3;
  // All times of the day are this much of 24 hours.
  absl::Duration day = absl::Hours(24);
  absl::Duration median = absl::Minutes(4);
  absl::Duration longest = absl::Hours(3);
};

TeamDay MakeTeamDay(const TeamDayOptions& options);

inline int ProjectOf(int user) { return user % kProjects; }

// What a layer takes of a micro-batch.
absl::Duration LayerTime(DayModel model);
// What the longest of its slots takes: two layers, forward and backward.
absl::Duration LongestSlot(DayModel model);
// What devices compute for the job in all (server_day.cc has its steps).
absl::Duration DeviceTimeOf(const DayJob& job);
// On all devices, if none ever waits.
absl::Duration AloneTimeOf(const DayJob& job);
// Where jobs have devices of their own: 1, 2, 4 or 8.  As few as end it within
// an hour, but 2 at least for a middle model, and 4 for a large one.
int DevicesAskedOf(const DayJob& job);

// Less than this alone, or as long.
inline constexpr absl::Duration kShortJob = absl::Minutes(10);
inline constexpr absl::Duration kLongJob = absl::Hours(1);

}  // namespace roundhouse::day

#endif  // ROUNDHOUSE_TESTS_DAY_TEAM_DAY_H_
