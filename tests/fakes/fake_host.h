// The host role without arithmetic: reads commands, waits and raises words and
// answers as worker/host does, one operation after the other, but an operation
// only takes the time that its bytes take host memory.  Weights, moments and
// gradient sums stay what they are; every norm is 1.
//
// Bytes of an operation:
//   gather  rows read and written
//   reduce  contributions and input gradients read, the sum written and, where
//           it is added to, read
//   update  28 a parameter and the compute copy: gradient 4, master and moments
//           read 12 and written 12
#ifndef ROUNDHOUSE_TESTS_FAKES_FAKE_HOST_H_
#define ROUNDHOUSE_TESTS_FAKES_FAKE_HOST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/wire/messages.h"
#include "tests/fakes/pace.h"
#include "worker/board/job_tables.h"
#include "worker/context.h"

namespace roundhouse::fakes {

struct FakeHostOptions {
  // Read and written together; 0: operations take no time.
  double bytes_per_second = 0;
  // Each operation takes as much longer.
  int64_t gather_delay_ns = 0;
  int64_t update_delay_ns = 0;
};

// Until Stop (OK) or until the daemon is gone (UNAVAILABLE).
absl::Status RunFakeHostWorker(const worker::WorkerContext& context,
                               const FakeHostOptions& options, Clock& clock);

// What the operation moves in host memory; of a gather one micro-batch's part.
// REQUIRES: op.unit is one of `tables`.
uint64_t GatherBytes(const wire::HostMicroBatch& micro_batch);
uint64_t ReduceBytes(const wire::HostOp& op, const worker::JobTables& tables);
uint64_t UpdateBytes(const wire::HostOp& op, const worker::JobTables& tables);

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_FAKE_HOST_H_
