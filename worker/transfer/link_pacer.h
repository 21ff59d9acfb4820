// When a throttled link is free again: each copy occupies it for bytes / rate,
// starting when it is asked for or when the one before is through, whichever is
// later.  No burst is saved up.  Pure arithmetic; thread-compatible.
#ifndef ROUNDHOUSE_WORKER_TRANSFER_LINK_PACER_H_
#define ROUNDHOUSE_WORKER_TRANSFER_LINK_PACER_H_

#include <cstdint>

namespace roundhouse::worker {

class LinkPacer {
 public:
  // `gbps` is 10^9 bits per second in one direction; 0 never makes one wait.
  explicit LinkPacer(double gbps);

  // Starts a copy of `bytes` at `now_ns` and returns when the link has carried
  // it, in the same clock.
  int64_t Carry(int64_t now_ns, uint64_t bytes);

 private:
  const double ns_per_byte_;
  double free_at_ns_ = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_TRANSFER_LINK_PACER_H_
