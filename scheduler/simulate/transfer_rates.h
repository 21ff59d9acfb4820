// How fast concurrent transfers go: each is bounded by its channel, all of them
// together by host memory, which they share evenly (max-min: what a slow
// channel leaves is shared by the others).  Channels before `first_shared` have
// their own rate whatever the others do.
//
//   rates.Start(channel, bytes);
//   for (int changed : rates.Settle()) ...     // after all starts of a moment
//   rates.AdvanceTo(rates.NextEndNs());
//   if (rates.Ended(channel)) ...
//
// Ends are whole nanoseconds, rounded up, so no transfer is faster than its
// rate.  Thread-compatible; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_RATES_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_RATES_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace roundhouse {

class TransferRates {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Bytes per nanosecond, all above 0.  `channel_rates` may be above the total.
  TransferRates(std::vector<double> channel_rates, double total_rate,
                int first_shared = 0);

  // REQUIRES: the channel is idle, rate above 0.
  void SetLimit(int channel, double rate);
  // Begins a transfer now.  REQUIRES: the channel is idle, bytes > 0.
  void Start(int channel, int64_t bytes);
  // Ends the running transfer now, as it is.
  void Cancel(int channel);
  // Ends the running transfer at the next multiple of `chunk_bytes` instead,
  // counted from `offset` bytes before its start.
  void EndAtChunk(int channel, int64_t chunk_bytes, int64_t offset);

  // Computes the rates anew when a transfer began or ended.  Returns the
  // channels under way whose rate changed, or that began.
  const std::vector<int>& Settle();
  // REQUIRES: Settle since the last change.
  int64_t NextEndNs() const;
  // REQUIRES: now_ns at most NextEndNs().
  void AdvanceTo(int64_t now_ns);
  // Channels whose transfers had ended when AdvanceTo was last called.
  const std::vector<int>& Ended() const { return ended_; }

  bool busy(int channel) const { return channels_[channel].busy; }
  // The bytes moved of the transfer under way; all of it once it ended.
  int64_t MovedBytes(int channel) const;
  // True once, and the channel is idle afterwards.
  bool TakeEnded(int channel) {
    Channel& state = channels_[channel];
    if (!state.busy || state.end_ns > now_ns_) return false;
    SetIdle(state);
    return true;
  }

 private:
  struct Channel {
    int index = 0;
    double limit = 0;
    bool shares = true;
    bool busy = false;
    double rate = 0;
    double share = 0;   // of Share
    int64_t bytes = 0;  // to move
    double moved = 0;
    int64_t end_ns = kNever;
  };

  void SetIdle(Channel& channel) {
    channel.busy = false;
    std::erase(busy_, &channel);
    settled_ = false;
  }
  // What every channel gets where they want more than there is.
  void Share();
  void SetRate(Channel& channel, double rate) const;

  const double total_rate_;
  std::vector<Channel> channels_;
  // The busy channels by index, which every event looks at.
  std::vector<Channel*> busy_;
  std::vector<int> changed_;  // of Settle
  std::vector<int> ended_;    // of AdvanceTo
  int64_t now_ns_ = 0;
  int64_t next_end_ns_ = kNever;  // of all channels, as of Settle
  bool settled_ = true;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_RATES_H_
