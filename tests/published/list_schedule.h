// Devices that each run a fixed list of operations in order: the virtual-time
// core of the published rules.
//
// An operation on device g starts its main part at the latest of: g free (and
// the prelude fits in after that), each dependency's end, plus the hop where
// the dependency ran on another device.  The prelude waits for nothing but the
// device and is placed just before the main part.
//
// Thread-compatible; deterministic.
#ifndef ROUNDHOUSE_TESTS_PUBLISHED_LIST_SCHEDULE_H_
#define ROUNDHOUSE_TESTS_PUBLISHED_LIST_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "scheduler/simulate/schedule.h"

namespace roundhouse {

class ListSchedule {
 public:
  using OpId = int;  // chosen by the caller, 0..op_count-1

  struct Piece {
    WorkKind kind = WorkKind::kForward;
    int layer_begin = 0;
    int layer_end = 0;
    int64_t length_ns = 0;
  };
  struct Op {
    PassDirection direction = PassDirection::kForward;
    int micro_batch = 0;
    std::vector<Piece> prelude;  // run without a gap, in order
    std::vector<Piece> main;
    std::vector<OpId> after;  // the main part's dependencies
  };

  // REQUIRES: device_count and op_count >= 1, hop_ns >= 0.
  ListSchedule(int device_count, int op_count, int64_t hop_ns);

  // Appends to a device's list.  REQUIRES: this id is new.
  void Append(int device, OpId id, Op op);

  // Runs all that was appended and not yet run.  REQUIRES (checked): the lists
  // are not in a deadlock.
  void Run();

  // The lowest of the devices that free first after Run.
  int FirstFreeDevice() const;

  // REQUIRES: Run was called since the last Append.
  const Schedule& schedule() const { return schedule_; }

 private:
  struct Placed {
    int device = -1;  // -1: not run yet
    int64_t end_ns = 0;
  };
  struct Device {
    std::vector<OpId> ops;
    size_t next = 0;
    int64_t free_ns = 0;
  };

  bool Ready(const Op& op) const;
  void Place(int device, OpId id);
  int64_t Emit(int device, const Op& op, const std::vector<Piece>& pieces,
               int64_t start_ns);

  const int64_t hop_ns_;
  std::vector<Op> ops_;
  std::vector<Placed> placed_;
  std::vector<Device> devices_;
  Schedule schedule_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_TESTS_PUBLISHED_LIST_SCHEDULE_H_
