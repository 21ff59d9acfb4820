// A pool for tests of this room: ann's job runs and holds most of the memory;
// bob's, cid's and ann's wait in this order.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_TEST_POOL_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_TEST_POOL_H_

#include <string>

#include "server/explain/pool_snapshot.h"

namespace roundhouse {

inline const JobOwner kAnn = {"vision", "ann"};
inline const JobOwner kBob = {"vision", "bob"};
inline const JobOwner kCid = {"speech", "cid"};

// Ten steps of 6 device-seconds: on two devices 30 s.
inline PoolSnapshot TestPool() {
  PoolSnapshot pool;
  pool.now = absl::FromUnixSeconds(1'700'000'000);
  pool.max_running_jobs = 4;
  pool.places_taken = 1;
  pool.used.running = CountOf({kAnn});
  pool.used.host_bytes.Add(kAnn, 70);
  pool.active = {{.id = "job-1",
                  .owner = kAnn,
                  .state = JobState::kRunning,
                  .has_steps = true,
                  .host_bytes = 70,
                  .length = JobLength{.steps = 10, .step_device_seconds = 6}}};
  pool.queue = {{.id = "job-4", .owner = kBob, .age = 2, .host_bytes = 40},
                {.id = "job-2", .owner = kCid, .age = 0, .host_bytes = 10},
                {.id = "job-3", .owner = kAnn, .age = 1, .host_bytes = 20}};
  pool.queue_size = 3;
  pool.project_use = {{"vision", 7200}, {"speech", 7200}};
  pool.user_use = {{{"vision", "ann"}, 5400},
                   {{"vision", "bob"}, 1800},
                   {{"speech", "cid"}, 3600}};
  pool.memory_limit_bytes = 100;
  pool.memory_used_bytes = 75;
  pool.memory_available_bytes = 22;
  pool.devices_up = 2;
  return pool;
}

inline void AskAbout(const std::string& id, const JobOwner& owner,
                     JobState state, PoolSnapshot& pool) {
  pool.asked.id = id;
  pool.asked.owner = owner.user;
  pool.asked.project = owner.project;
  pool.asked.state = state;
  for (size_t i = 0; i < pool.queue.size(); ++i) {
    if (pool.queue[i].id == id) pool.asked_place = i + 1;
  }
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_TEST_POOL_H_
