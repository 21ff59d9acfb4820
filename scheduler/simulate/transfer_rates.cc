#include "scheduler/simulate/transfer_rates.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace roundhouse {

TransferRates::TransferRates(std::vector<double> channel_rates,
                             double total_rate, int first_shared)
    : total_rate_(total_rate), channels_(channel_rates.size()) {
  ROUNDHOUSE_CHECK(total_rate > 0);
  for (size_t i = 0; i < channel_rates.size(); ++i) {
    ROUNDHOUSE_CHECK(channel_rates[i] > 0) << i;
    channels_[i].index = static_cast<int>(i);
    channels_[i].limit = channel_rates[i];
    channels_[i].shares = static_cast<int>(i) >= first_shared;
  }
}

void TransferRates::SetLimit(int channel, double rate) {
  Channel& state = channels_.at(channel);
  ROUNDHOUSE_CHECK(!state.busy && rate > 0) << channel << " " << rate;
  state.limit = rate;
}

void TransferRates::Start(int channel, int64_t bytes) {
  Channel& state = channels_.at(channel);
  ROUNDHOUSE_CHECK(!state.busy && bytes > 0) << channel << " " << bytes;
  state.busy = true;
  auto place = busy_.end();
  while (place != busy_.begin() && place[-1]->index > channel) --place;
  busy_.insert(place, &state);
  state.bytes = bytes;
  state.moved = 0;
  state.rate = 0;
  state.end_ns = kNever;
  settled_ = false;
}

void TransferRates::Cancel(int channel) {
  ROUNDHOUSE_CHECK(channels_.at(channel).busy) << channel;
  SetIdle(channels_[channel]);
}

void TransferRates::EndAtChunk(int channel, int64_t chunk_bytes,
                               int64_t offset) {
  Channel& state = channels_.at(channel);
  ROUNDHOUSE_CHECK(state.busy && chunk_bytes > 0);
  const auto moved = static_cast<int64_t>(std::ceil(state.moved)) + offset;
  const int64_t chunks = std::max<int64_t>(
      (moved + chunk_bytes - 1) / chunk_bytes, offset / chunk_bytes + 1);
  state.bytes = std::min(state.bytes, chunks * chunk_bytes - offset);
  state.rate = 0;  // So that its end is computed anew.
  settled_ = false;
}

const std::vector<int>& TransferRates::Settle() {
  changed_.clear();
  if (settled_) return changed_;
  settled_ = true;
  next_end_ns_ = kNever;
  double wanted = 0;
  for (const Channel* channel : busy_) {
    if (channel->shares) wanted += channel->limit;
  }
  // Mostly, and then there is nothing to share.
  const bool enough = wanted <= total_rate_;
  if (!enough) Share();
  for (Channel* const channel : busy_) {
    const double rate =
        enough || !channel->shares ? channel->limit : channel->share;
    if (rate != channel->rate) {
      changed_.push_back(channel->index);
      SetRate(*channel, rate);
    }
    next_end_ns_ = std::min(next_end_ns_, channel->end_ns);
  }
  return changed_;
}

void TransferRates::Share() {
  int waiting = 0;
  for (Channel* const channel : busy_) {
    channel->share = 0;
    if (channel->shares) ++waiting;
  }
  double left = total_rate_;
  // Each pass settles those that cannot use an even share, the last pass all.
  while (waiting > 0) {
    const double share = left / waiting;
    int bounded = 0;
    for (Channel* const channel : busy_) {
      if (!channel->shares || channel->share > 0 || channel->limit > share) {
        continue;
      }
      channel->share = channel->limit;
      left -= channel->limit;
      ++bounded;
    }
    waiting -= bounded;
    if (bounded > 0) continue;
    for (Channel* const channel : busy_) {
      if (channel->share == 0) channel->share = share;
    }
    waiting = 0;
  }
}

void TransferRates::SetRate(Channel& channel, double rate) const {
  channel.rate = rate;
  const double missing = static_cast<double>(channel.bytes) - channel.moved;
  channel.end_ns =
      now_ns_ +
      std::max<int64_t>(0, static_cast<int64_t>(std::ceil(missing / rate)));
}

int64_t TransferRates::NextEndNs() const {
  ROUNDHOUSE_CHECK(settled_);
  return next_end_ns_;
}

void TransferRates::AdvanceTo(int64_t now_ns) {
  const auto passed = static_cast<double>(now_ns - now_ns_);
  ended_.clear();
  for (Channel* const channel : busy_) {
    ROUNDHOUSE_CHECK(now_ns <= channel->end_ns);
    const auto bytes = static_cast<double>(channel->bytes);
    if (now_ns == channel->end_ns) {
      channel->moved = bytes;
      ended_.push_back(channel->index);
    } else {
      channel->moved = std::min(bytes, channel->moved + channel->rate * passed);
    }
  }
  now_ns_ = now_ns;
}

int64_t TransferRates::MovedBytes(int channel) const {
  return static_cast<int64_t>(channels_.at(channel).moved);  // rounded down
}

}  // namespace roundhouse
