// How fast a job's bytes cross the devices' links and how fast the host worker
// reduces and updates, for the plans that are searched for.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_PLANNING_MEASURED_RATES_H_
#define ROUNDHOUSE_SERVER_PLANNING_MEASURED_RATES_H_

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/plan/machine.h"

namespace roundhouse {

class MeasuredRates {
 public:
  // What moved less in a direction, or in an operation, says more of threads
  // and of starting it than of a rate.
  static constexpr uint64_t kLeastBytes = uint64_t{16} << 20;

  void ObserveSlot(const wire::SlotDone& done);
  // An operation on a unit of so many elements, whose contributions are of that
  // dtype, took `ns`.  Rows of an embedding are not counted.
  void ObserveHostOp(const RunHostOpAction& action, int64_t elements,
                     DType contributions, int64_t ns);

  // Replaces the rates that were measured.  Links: the fastest slot's, of the
  // slower direction, since what links lose to each other in host memory is for
  // the simulator to say.  Host work: of all operations so far.
  void Apply(Machine& machine) const;

 private:
  // Bytes per nanosecond; 0: not measured.
  std::array<double, wire::kDirections> fastest_ = {};
  double host_bytes_ = 0;
  double host_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_MEASURED_RATES_H_
