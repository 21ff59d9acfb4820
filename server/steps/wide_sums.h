// What becomes of the sums of one job's wide slots where devices reach each
// other: carries out what SumExchanges decides (scheduler/dispatch), with the
// workers, and tells the dispatcher when contributions are down.
//
// Without a group of devices nothing is held, and slots and host operations are
// what they are without this.  Sums of adapters are few: they go down as ever,
// and so do those that one fp32 sum would not be smaller than.
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_WIDE_SUMS_H_
#define ROUNDHOUSE_SERVER_STEPS_WIDE_SUMS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/sum_exchanges.h"
#include "server/planning/round_buffers.h"
#include "server/steps/dispatch_loop.h"
#include "server/steps/step_entry.h"
#include "server/weights/training_state.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class WideSums {
 public:
  // The job's, as they are now.
  struct Job {
    std::map<uint64_t, StepEntry>& steps;
    const std::map<SlotId, OutSlot>& out;
    const TrainingState& state;
    const RoundBuffers& buffers;
  };

  // Both outlive it.
  WideSums(WorkerPool& pool, DispatchLoop& dispatch)
      : pool_(pool), dispatch_(dispatch) {}

  // `command` is about to be sent for the action; `again`: not for the first
  // time.  Says in it whether sums are held.
  void OnSend(const Job& job, const RunSlotAction& action, bool again,
              wire::RunSlot& command);

  // The workers' answers, for a slot that is out; the dispatcher's CarryOut is
  // to follow.
  void OnSumsHeld(const Job& job, const OutSlot& slot,
                  const wire::SumsHeld& held);
  void OnSliceDown(const Job& job, const OutSlot& slot,
                   const wire::SliceDown& down);
  // The slot sent the sums of a unit, or of all, down itself.
  void OnDown(const Job& job, const OutSlot& slot, int unit);
  void OnDone(const Job& job, const OutSlot& slot);

  // The slot's worker died, it was asked for, or it failed.
  void OnGone(const Job& job, SlotId slot);
  void OnPeersOver(const Job& job);

  // Units' sums that were added up between devices, and exchanges that were
  // not to be, since the last call.
  struct Counts {
    int64_t exchanged = 0;
    int64_t failed = 0;
  };
  Counts TakeCounts() { return std::exchange(counts_, {}); }

  void Forget(uint64_t step_number) { exchanges_.Forget(step_number); }
  void Clear() { exchanges_.Clear(); }

 private:
  static SumSetId SetOf(const OutSlot& slot, int unit);
  // A part of a wide slot whose sums together are more bytes than one in fp32:
  // two in bf16 are not.
  bool MayExchange(const Job& job, const RunSlotAction& action) const;
  void Flush(const Job& job);
  void Send(const Job& job, const SumExchanges::Order& order);

  WorkerPool& pool_;
  DispatchLoop& dispatch_;
  SumExchanges exchanges_;
  Counts counts_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_WIDE_SUMS_H_
