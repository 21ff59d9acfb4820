#include "scheduler/simulate/transfers.h"

#include <algorithm>
#include <utility>

namespace roundhouse {
namespace {

std::vector<double> ChannelRates(const Machine& machine) {
  std::vector<double> rates(2 * machine.devices.size(), machine.link_rate);
  rates.push_back(machine.HostWorkRate());
  return rates;
}

Resource HostResource(WorkKind kind) {
  const auto threads = kind == WorkKind::kReduce ? HostThreads::kReduce
                                                 : HostThreads::kOptimizer;
  return {ResourceType::kHost, static_cast<int>(threads)};
}

}  // namespace

Transfers::Transfers(const Machine& machine, const Options& options,
                     Schedule& schedule)
    : options_(options),
      reduce_rate_(machine.HostWorkRate()),
      update_rate_(std::min(options.update_rate, machine.HostWorkRate())),
      schedule_(schedule),
      rates_(ChannelRates(machine), machine.host_rate,
             machine.links_share_host_rate ? 0 : 2 * machine.device_count()),
      channels_(2 * machine.devices.size() + 1) {
  for (int d = 0; d < machine.device_count(); ++d) {
    channels_[Up(d)].resource = {ResourceType::kH2d, d};
    channels_[Down(d)].resource = {ResourceType::kD2h, d};
  }
}

void Transfers::Push(int channel, const Transfer& transfer) {
  if (transfer.bytes == 0) {
    empty_.push_back({channel, transfer});
    return;
  }
  Channel& state = channels_.at(channel);
  Change(channel);
  Queued queued{transfer};
  if (!options_.priorities) queued.transfer.rank = kBulkRank;
  Insert(state.queue, queued, AmongEquals::kLast);
}

std::optional<int64_t> Transfers::BytesUntilWeights(int channel,
                                                    const PartRun& run,
                                                    int layer) const {
  const Channel& state = channels_.at(channel);
  const auto are = [&](const Transfer& transfer) {
    return transfer.run == &run && transfer.kind == WorkKind::kWeights &&
           transfer.boundary.layer == layer && transfer.last;
  };
  int64_t bytes = 0;
  if (state.current.has_value()) {
    bytes = state.current->transfer.bytes - state.current->moved -
            rates_.MovedBytes(channel);
    if (are(state.current->transfer)) return bytes;
  }
  for (auto queued = state.queue.rbegin(); queued != state.queue.rend();
       ++queued) {
    bytes += queued->transfer.bytes - queued->moved;
    if (are(queued->transfer)) return bytes;
  }
  return std::nullopt;
}

void Transfers::Cancel(const PartRun& run) {
  std::erase_if(empty_,
                [&](const Ended& ended) { return ended.transfer.run == &run; });
  for (size_t c = 0; c < channels_.size(); ++c) {
    Channel& channel = channels_[c];
    std::erase_if(channel.queue, [&](const Queued& queued) {
      return queued.transfer.run == &run;
    });
    if (!channel.current.has_value() || channel.current->transfer.run != &run) {
      continue;
    }
    EndPiece(static_cast<int>(c));
    rates_.Cancel(static_cast<int>(c));
    channel.current.reset();
    Change(static_cast<int>(c));
  }
}

void Transfers::Change(int channel) {
  if (!std::exchange(channels_[channel].changed, true)) {
    changed_.push_back(channel);
  }
}

void Transfers::Insert(std::vector<Queued>& queue, const Queued& queued,
                       AmongEquals place) {
  const auto later = [](const Queued& a, const Queued& b) {
    return a.transfer.rank > b.transfer.rank;
  };
  const auto at =
      place == AmongEquals::kFirst
          ? std::upper_bound(queue.begin(), queue.end(), queued, later)
          : std::lower_bound(queue.begin(), queue.end(), queued, later);
  queue.insert(at, queued);
}

void Transfers::Start() {
  for (const int channel : changed_) {
    channels_[channel].changed = false;
    StartChannel(channel);
  }
  changed_.clear();
  for (const int changed : rates_.Settle()) {
    if (options_.intervals == Intervals::kByRate) EndPiece(changed);
  }
}

void Transfers::StartChannel(int index) {
  Channel& channel = channels_[index];
  if (channel.current.has_value()) {
    const int64_t rank = channel.current->transfer.rank;
    if (index != Host() && rank >= kBulkRank && !channel.gives_way &&
        !channel.queue.empty() && channel.queue.back().transfer.rank < rank) {
      channel.gives_way = true;
      rates_.EndAtChunk(index, options_.chunk_bytes, channel.current->moved);
    }
    return;
  }
  if (channel.queue.empty()) return;
  channel.current = channel.queue.back();
  channel.queue.pop_back();
  channel.gives_way = false;
  channel.piece_start_ns = now_ns_;
  channel.piece_begin = 0;
  if (index == Host()) {
    rates_.SetLimit(index, HostRate(channel.current->transfer.kind));
  }
  rates_.Start(index, channel.current->transfer.bytes - channel.current->moved);
}

int64_t Transfers::NextEndNs() const {
  return empty_.empty() ? rates_.NextEndNs() : now_ns_;
}

void Transfers::AdvanceTo(int64_t now_ns) {
  rates_.AdvanceTo(now_ns);
  now_ns_ = now_ns;
}

const std::vector<Transfers::Ended>& Transfers::TakeEnded() {
  ended_.clear();
  std::swap(ended_, empty_);
  for (const int channel : rates_.Ended()) {
    if (rates_.TakeEnded(channel)) EndChannel(channel);
  }
  return ended_;
}

void Transfers::EndChannel(int index) {
  Channel& channel = channels_[index];
  Change(index);
  EndPiece(index);
  Queued& done = *channel.current;
  done.moved += rates_.MovedBytes(index);
  if (done.moved == done.transfer.bytes) {
    ended_.push_back({index, done.transfer});
  } else {
    Insert(channel.queue, done, AmongEquals::kFirst);
  }
  channel.current.reset();
}

void Transfers::EndPiece(int index) {
  Channel& channel = channels_[index];
  if (now_ns_ == channel.piece_start_ns) return;
  schedule_.end_ns = std::max(schedule_.end_ns, now_ns_);
  if (options_.intervals != Intervals::kNone) Record(index);
  channel.piece_start_ns = now_ns_;
}

void Transfers::Record(int index) {
  Channel& channel = channels_[index];
  const Transfer& transfer = channel.current->transfer;
  Interval interval;
  interval.resource =
      transfer.run == nullptr ? HostResource(transfer.kind) : channel.resource;
  interval.kind = transfer.kind;
  interval.job = transfer.job;
  interval.step = transfer.step;
  if (transfer.run != nullptr) {
    interval.attempt = transfer.run->place().attempt;
  }
  interval.direction = transfer.boundary.direction;
  interval.layer_begin = transfer.boundary.layer;
  interval.layer_end = transfer.kind == WorkKind::kActivations
                           ? transfer.boundary.layer
                           : transfer.boundary.layer + 1;
  if (transfer.boundary.micro_batch != kNoMicroBatch) {
    interval.micro_batch =
        transfer.boundary.micro_batch - transfer.first_micro_batch;
  }
  interval.start_ns = channel.piece_start_ns;
  interval.end_ns = now_ns_;
  const int64_t moved = rates_.MovedBytes(index);
  interval.bytes = moved - channel.piece_begin;
  channel.piece_begin = moved;
  schedule_.intervals.push_back(interval);
}

}  // namespace roundhouse
