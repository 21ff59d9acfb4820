// Who may start a dataset helper next: two lanes, each with so many slots, so
// that what is read in a moment never waits behind what takes hours.
//
// In a lane whoever has fewer running goes first, then who came first.  Pure
// bookkeeping; not thread-safe.
//
//   lanes.Add("job-7", HelperLane::kLong, "uid:1000");
//   while (auto id = lanes.TakeNext()) Start(*id);
//   ...
//   lanes.Remove("job-7");  // it ended, or nobody wants it any more
#ifndef ROUNDHOUSE_SERVER_DATASET_HELPER_LANES_H_
#define ROUNDHOUSE_SERVER_DATASET_HELPER_LANES_H_

#include <cstddef>
#include <list>
#include <optional>
#include <string>

namespace roundhouse {

enum class HelperLane { kShort, kLong };

class HelperLanes {
 public:
  struct Limits {
    size_t short_running = 1;  // at once
    size_t long_running = 1;
    size_t running_each = 1;  // for one principal, in each lane
  };

  explicit HelperLanes(const Limits& limits) : limits_(limits) {}

  // REQUIRES: `id` is not there.  `principal` is whoever it is for; "": not
  // known, and nobody's share is counted.
  void Add(const std::string& id, HelperLane lane,
           const std::string& principal);
  // The one that runs from now on; none: nobody waits, or there is no slot.
  std::optional<std::string> TakeNext();
  // A running or waiting one; no effect on others.
  void Remove(const std::string& id);
  void Clear() { entries_.clear(); }

  bool Has(const std::string& id) const;
  bool Runs(const std::string& id) const;
  size_t size() const { return entries_.size(); }
  size_t Waiting(HelperLane lane) const;
  size_t Waiting(HelperLane lane, const std::string& principal) const;

 private:
  struct Entry {
    std::string id;
    HelperLane lane;
    std::string principal;
    bool running = false;
  };

  std::list<Entry>::iterator NextOf(HelperLane lane);
  size_t Running(HelperLane lane) const;
  size_t RunningFor(HelperLane lane, const std::string& principal) const;

  const Limits limits_;
  std::list<Entry> entries_;  // in order of Add
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DATASET_HELPER_LANES_H_
