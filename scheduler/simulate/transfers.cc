#include "scheduler/simulate/transfers.h"

#include <algorithm>
#include <utility>

namespace roundhouse {
namespace {

std::vector<double> ChannelRates(const Machine& machine) {
  std::vector<double> rates(2 * machine.devices.size(), machine.link_rate);
  rates.push_back(machine.host_rate);
  return rates;
}

}  // namespace

Transfers::Transfers(const Machine& machine, int64_t chunk_bytes,
                     bool split_at_rates, Schedule& schedule)
    : chunk_bytes_(chunk_bytes),
      split_at_rates_(split_at_rates),
      schedule_(schedule),
      rates_(ChannelRates(machine), machine.host_rate),
      channels_(2 * machine.devices.size() + 1) {
  for (int d = 0; d < machine.device_count(); ++d) {
    channels_[Up(d)].resource = {ResourceType::kH2d, d};
    channels_[Down(d)].resource = {ResourceType::kD2h, d};
  }
  channels_.back().resource = {ResourceType::kHost,
                               static_cast<int>(HostThreads::kReduce)};
}

void Transfers::Push(int channel, const Transfer& transfer) {
  if (transfer.bytes == 0) {
    empty_.push_back({channel, transfer});
    return;
  }
  Channel& state = channels_.at(channel);
  state.changed = true;
  if (transfer.kind != WorkKind::kActivations) {
    state.bulk.push_back({transfer});
    return;
  }
  const auto later = std::find_if(
      state.urgent.begin(), state.urgent.end(), [&](const Queued& queued) {
        return queued.transfer.order > transfer.order;
      });
  state.urgent.insert(later, {transfer});
}

void Transfers::Start() {
  for (int c = 0; c < static_cast<int>(channels_.size()); ++c) {
    if (std::exchange(channels_[c].changed, false)) StartChannel(c);
  }
  for (const int changed : rates_.Settle()) {
    if (split_at_rates_) EndPiece(changed);
  }
}

void Transfers::StartChannel(int index) {
  Channel& channel = channels_[index];
  if (channel.current.has_value()) {
    const bool bulk = channel.current->transfer.kind != WorkKind::kActivations;
    if (bulk && !channel.gives_way && !channel.urgent.empty()) {
      channel.gives_way = true;
      rates_.EndAtChunk(index, chunk_bytes_, channel.current->moved);
    }
    return;
  }
  auto& queue = channel.urgent.empty() ? channel.bulk : channel.urgent;
  if (queue.empty()) return;
  channel.current = std::move(queue.front());
  queue.pop_front();
  channel.gives_way = false;
  channel.piece_start_ns = now_ns_;
  channel.piece_begin = 0;
  rates_.Start(index, channel.current->transfer.bytes - channel.current->moved);
}

int64_t Transfers::NextEndNs() const {
  return empty_.empty() ? rates_.NextEndNs() : now_ns_;
}

void Transfers::AdvanceTo(int64_t now_ns) {
  rates_.AdvanceTo(now_ns);
  now_ns_ = now_ns;
}

std::vector<Transfers::Ended> Transfers::TakeEnded() {
  std::vector<Ended> ended = std::exchange(empty_, {});
  for (int c = 0; c < static_cast<int>(channels_.size()); ++c) {
    if (rates_.TakeEnded(c)) EndChannel(c, ended);
  }
  return ended;
}

void Transfers::EndChannel(int index, std::vector<Ended>& ended) {
  Channel& channel = channels_[index];
  channel.changed = true;
  EndPiece(index);
  Queued done = *std::exchange(channel.current, std::nullopt);
  done.moved += rates_.MovedBytes(index);
  if (done.moved == done.transfer.bytes) {
    ended.push_back({index, done.transfer});
  } else {
    channel.bulk.push_front(done);
  }
}

void Transfers::EndPiece(int index) {
  Channel& channel = channels_[index];
  const int64_t moved = rates_.MovedBytes(index);
  const Transfer& transfer = channel.current->transfer;
  if (now_ns_ > channel.piece_start_ns) {
    Interval interval;
    interval.resource = channel.resource;
    interval.kind = transfer.kind;
    interval.direction = transfer.boundary.direction;
    interval.layer_begin = transfer.boundary.layer;
    interval.layer_end = transfer.kind == WorkKind::kActivations
                             ? transfer.boundary.layer
                             : transfer.boundary.layer + 1;
    interval.micro_batch = transfer.boundary.micro_batch;
    interval.start_ns = channel.piece_start_ns;
    interval.end_ns = now_ns_;
    interval.bytes = moved - channel.piece_begin;
    schedule_.intervals.push_back(interval);
    channel.piece_begin = moved;
    channel.piece_start_ns = now_ns_;
  }
}

}  // namespace roundhouse
