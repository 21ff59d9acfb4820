// Which sums of gradients the parts of a job's wide slots add up between their
// devices, instead of sending one each to the host.  Pure; beside the
// Dispatcher, which only learns when contributions are down.
//
// A *set* is what the parts of one backward slot contribute to one unit in one
// round.  A part holds its sums until told what becomes of them:
//
//   all parts hold theirs --kExchange to all--> slices come down
//     all slices down --kRelease to all--> the set is done
//   a part is gone, sent its sums down itself, or could not exchange
//     --kDownload to all others--> each sum is down on its own
//
// So a set ends with all slices or with all sums in host memory, whatever dies.
// Orders to exchange go out in one order for all devices: whoever carries them
// out in that order waits for nobody that waits for it.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_SUM_EXCHANGES_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_SUM_EXCHANGES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"

namespace roundhouse {

struct SumSetId {
  uint64_t step_number = 0;
  int round = 0;
  int unit = 0;  // the caller's numbers

  friend auto operator<=>(const SumSetId&, const SumSetId&) = default;
};

class SumExchanges {
 public:
  enum class Verb { kExchange, kDownload, kRelease };
  struct Order {
    Verb verb = Verb::kRelease;
    SlotId slot{};
    SumSetId set;
  };
  struct DoneSet {
    SumSetId set;
    std::vector<SlotId> slots;  // the parts
  };

  // --- what is known of a part's share of a set

  // The part is about to be sent for the first time.  Whether it may hold its
  // sums: not where another part is on that device (it would be sent no further
  // ones while it held these), nor where nothing comes of the set.
  bool MayHold(DeviceId device, const SumSetId& set);
  // The part holds its sums, of `groups` of the round's `total_groups`.
  // `may_exchange`: devices that reach each other are there to do it.
  // REQUIRES: MayHold was true for it.
  void Held(SlotId slot, const SumSetId& set, int64_t groups,
            int64_t total_groups, bool may_exchange);
  // Its answer to kExchange.  `whole`: its slice is down; it holds its sums
  // still.
  void Exchanged(SlotId slot, const SumSetId& set, bool whole);
  // Its sums are down, or it will not hold any: nothing comes of an exchange.
  void NotHeld(SlotId slot, const SumSetId& set);
  // The slot's worker died, or it was withdrawn or failed: what it held is
  // gone.
  void Gone(SlotId slot);
  // Devices do not reach each other any more.  Those that exchange will say so.
  void BreakAll();
  // The step has ended, or all have.
  void Forget(uint64_t step_number);
  void Clear() { sets_.clear(); }

  // --- what follows, in order; each is given out once
  std::vector<Order> TakeOrders();
  std::vector<DoneSet> TakeDone();
  // How many sets were under exchange and went apart after all.
  int TakeFailed();

  // The parts of a set under exchange, by id.  REQUIRES: there is one.
  std::vector<SlotId> PartsOf(const SumSetId& set) const;

 private:
  struct Part {
    enum class State { kHeld, kExchanging, kSliced, kLeaving };
    State state = State::kHeld;
    int64_t groups = 0;
  };
  struct Set {
    std::map<SlotId, Part> parts;
    std::set<DeviceId> devices;  // that were sent one to hold
    bool exchanging = false;     // ordered to
    bool broken = false;
    bool done = false;
  };

  void Break(const SumSetId& id, Set& set);
  void Give(Verb verb, SlotId slot, const SumSetId& set) {
    orders_.push_back({verb, slot, set});
  }

  std::map<SumSetId, Set> sets_;
  std::vector<Order> orders_;
  std::vector<DoneSet> done_;
  int failed_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_SUM_EXCHANGES_H_
