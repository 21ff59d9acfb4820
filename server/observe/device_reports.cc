#include "server/observe/device_reports.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "base/clock.h"
#include "server/loop/event_loop.h"

namespace roundhouse {
namespace {

constexpr int64_t kWindowNs = int64_t{10} * 1000000000;

// What a worker has told may be on its way for so long: time is published as
// waited for only when no news of it can come any more.
constexpr int64_t kNewsNs = 200'000'000;

// What is left of a share after each Publish: half is forgotten in 7 s.
constexpr double kShareDecay = 0.9;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

int64_t SumOf(const wire::WaitTimes& waits) {
  return std::accumulate(waits.begin(), waits.end(), int64_t{0});
}

const char* StateText(DeviceState state) {
  switch (state) {
    case DeviceState::kStarting:
      return "starting";
    case DeviceState::kUp:
      return "up";
    case DeviceState::kLost:
      return "lost";
    case DeviceState::kTakenOut:
      return "taken out";
  }
  return "";
}

void SetTimes(const DeviceTimes& times, DeviceInfo& info) {
  info.compute_seconds = Seconds(times.compute_ns);
  info.bubble_seconds = Seconds(times.bubble_ns);
  info.idle_seconds = Seconds(times.idle_ns);
  info.fenced_seconds = Seconds(times.fenced_ns);
  info.filled_bubble_seconds = Seconds(times.filled_bubble_ns);
  info.bubble_causes.clear();
  for (int cause = 0; cause < wire::kWaitCauses; ++cause) {
    info.bubble_causes.emplace_back(
        WaitCauseName(static_cast<wire::WaitCause>(cause)),
        Seconds(times.bubble_causes_ns[cause]));
  }
}

}  // namespace

DeviceReports::DeviceReports(const WorkerPool& pool, ServerMetrics& metrics,
                             const DeviceReportsOptions& options)
    : pool_(pool),
      metrics_(metrics),
      link_is_given_(options.link_gbps > 0),
      samples_(options.samples) {
  for (int i = 0; i < pool.device_count(); ++i) {
    ledgers_.emplace_back(MonotonicNs());
    histories_.emplace_back(MonotonicNs());
    sent_.emplace_back();
    computing_.push_back(0);
    backfill_.emplace_back();
    links_.emplace_back();
    memory_peak_bytes_.push_back(0);
    jobs_.emplace_back();
    metrics_.AddDevice(i);
    if (options.link_gbps > 0) {
      const double rate = options.link_gbps * 1e9 / 8;
      SetLinkRates(i, rate, rate);
    }
    DeviceInfo device;
    device.index = i;
    device.kind = pool.gpus().empty() ? "cpu" : "cuda";
    if (!pool.gpus().empty()) {
      device.product_name = pool.gpus()[i].name;
      device.uuid = pool.gpus()[i].uuid;
    }
    device.memory_limit_bytes = static_cast<int64_t>(options.memory_bytes);
    device.threads = options.threads;
    infos_.push_back(device);
  }
}

void DeviceReports::SetBusy(bool busy) {
  if (busy_ == busy) return;
  busy_ = busy;
  const int64_t now = MonotonicNs();
  for (DeviceLedger& ledger : ledgers_) ledger.SetBusy(busy, now);
  if (!busy) jobs_.assign(jobs_.size(), "");
}

void DeviceReports::OnSlotSent(DeviceId device, uint64_t attempt,
                               const SlotFacts& slot) {
  sent_[Number(device)][attempt] = slot;
}

void DeviceReports::OnMessage(DeviceId device, const wire::Message& message) {
  const wire::Body& body = message.body;
  if (const auto* started = std::get_if<wire::SlotStarted>(&body)) {
    OnSlotStarted(device, message.attempt, *started);
  } else if (const auto* done = std::get_if<wire::MicroBatchDone>(&body)) {
    OnMicroBatchDone(device, *done);
  } else if (const auto* part = std::get_if<wire::BackfillComputed>(&body)) {
    OnBackfillComputed(device, message.attempt, *part);
  } else if (const auto* sample = std::get_if<wire::SampleDone>(&body)) {
    OnSampleDone(device, *sample);
  } else if (std::holds_alternative<wire::Withdrawn>(body) ||
             std::holds_alternative<wire::Failed>(body)) {
    OnGivenUp(device, message.attempt);
  }
}

void DeviceReports::OnSlotStarted(DeviceId device, uint64_t attempt,
                                  const wire::SlotStarted& started) {
  const auto slot = sent_[Number(device)].extract(attempt);
  if (started.backfill) {
    backfill_[Number(device)] = {attempt, slot ? slot.mapped() : SlotFacts()};
    return;
  }
  computing_[Number(device)] = attempt;
  histories_[Number(device)].Started(slot ? slot.mapped() : SlotFacts(),
                                     started.time_ns, SumOf(started.waits));
  ledgers_[Number(device)].Started(started.time_ns, started.waits,
                                   started.fills_bubble);
}

void DeviceReports::OnMicroBatchDone(DeviceId device,
                                     const wire::MicroBatchDone& done) {
  DeviceLedger& ledger = ledgers_[Number(device)];
  SlotHistory& history = histories_[Number(device)];
  const int64_t waited_ns = SumOf(done.waits);
  if (done.last) {
    ledger.Ended(done.time_ns, done.waits);
    history.Ended(done.time_ns, waited_ns);
  } else {
    ledger.Computed(done.time_ns, done.waits);
    history.Computed(done.time_ns, waited_ns);
  }
}

void DeviceReports::OnBackfillComputed(DeviceId device, uint64_t attempt,
                                       const wire::BackfillComputed& part) {
  ledgers_[Number(device)].Backfilled(part.started_ns, part.ended_ns,
                                      part.fills_bubble);
  Backfill& backfill = backfill_[Number(device)];
  if (backfill.attempt != attempt) return;
  histories_[Number(device)].Backfilled(backfill.facts, part.started_ns,
                                        part.ended_ns, !backfill.told);
  backfill.told = true;
}

void DeviceReports::OnGivenUp(DeviceId device, uint64_t attempt) {
  sent_[Number(device)].erase(attempt);
  if (computing_[Number(device)] != attempt) return;
  ledgers_[Number(device)].GaveUp(MonotonicNs());
  histories_[Number(device)].GaveUp(MonotonicNs());
}

void DeviceReports::SetLinkRates(int device, double h2d, double d2h) {
  metrics_.SetLinkRate(device, wire::Direction::kH2D, h2d);
  metrics_.SetLinkRate(device, wire::Direction::kD2H, d2h);
}

void DeviceReports::OnWorkerUp(DeviceId device) {
  ledgers_[Number(device)].Unfence(MonotonicNs());
  PublishWorkers();
  const WorkerInfo& info = pool_.info(pool_.DeviceWorker(device));
  if (link_is_given_ || info.h2d_bytes_per_second == 0) return;
  SetLinkRates(Number(device), static_cast<double>(info.h2d_bytes_per_second),
               static_cast<double>(info.d2h_bytes_per_second));
}

void DeviceReports::OnWorkerDown(DeviceId device) {
  ledgers_[Number(device)].GaveUp(MonotonicNs());
  histories_[Number(device)].GaveUp(MonotonicNs());
  sent_[Number(device)].clear();
  jobs_[Number(device)].clear();
  PublishWorkers();
}

void DeviceReports::OnDeviceLost(DeviceId device) {
  ledgers_[Number(device)].Fence(MonotonicNs());
  PublishWorkers();
}

void DeviceReports::ObserveSlot(SlotKind kind, const wire::SlotDone& done) {
  const std::pair<SlotPhase, int64_t> phases[] = {
      {SlotPhase::kWait, done.wait_ns},
      {SlotPhase::kHostToDevice, done.h2d_ns},
      {SlotPhase::kCompute, done.compute_ns},
      {SlotPhase::kDeviceToHost, done.d2h_ns}};
  for (const auto& [phase, ns] : phases) {
    metrics_.ObserveSlot(kind, phase, absl::Nanoseconds(ns));
  }
}

void DeviceReports::OnSlot(const std::string& job, DeviceId device,
                           SlotKind kind, const wire::SlotDone& done) {
  const int index = Number(device);
  shares_[job] += static_cast<double>(done.compute_ns);
  memory_peak_bytes_[index] =
      std::max(memory_peak_bytes_[index], done.device_memory_peak_bytes);
  jobs_[index] = job;
  metrics_.CountSlot(index, SlotResult::kOk);
  ObserveSlot(kind, done);
  if (samples_ != nullptr) samples_->AddSlot(index, done);
  AddTransfers(index, done);
  MutexLock lock(mutex_);
  DeviceInfo& info = infos_[index];
  ++info.slots;
  for (int p = 0; p < wire::kPurposes; ++p) {
    info.h2d_bytes += static_cast<int64_t>(done.bytes[0][p]);
    info.d2h_bytes += static_cast<int64_t>(done.bytes[1][p]);
  }
}

void DeviceReports::AddTransfers(int device, const wire::SlotDone& done) {
  const int64_t busy_ns[wire::kDirections] = {done.h2d_ns, done.d2h_ns};
  for (const wire::Direction direction : wire::kEachDirection) {
    const int d = static_cast<int>(direction);
    links_[device].busy_ns[d] += busy_ns[d];
    metrics_.AddLinkBusy(device, direction, absl::Nanoseconds(busy_ns[d]));
    for (const wire::Purpose purpose : wire::kEachPurpose) {
      metrics_.AddTransfer(
          device, direction, purpose,
          static_cast<int64_t>(done.bytes[d][static_cast<int>(purpose)]));
    }
  }
}

void DeviceReports::ForgetJob(const std::string& job) {
  if (shares_.erase(job) != 0) metrics_.SetJobShare(job, 0);
}

void DeviceReports::OnSlotReplayed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kReplayed);
}

void DeviceReports::OnSlotFailed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kFailed);
}

void DeviceReports::OnSampleDone(DeviceId device,
                                 const wire::SampleDone& done) {
  ledgers_[Number(device)].Ended(done.ended_ns, {});
  histories_[Number(device)].Ended(done.ended_ns, 0);
  const auto bytes = static_cast<int64_t>(done.weight_bytes);
  metrics_.AddTransfer(Number(device), wire::Direction::kH2D,
                       wire::Purpose::kWeights, bytes);
  MutexLock lock(mutex_);
  infos_[Number(device)].h2d_bytes += bytes;
}

void DeviceReports::OnDispatchLatency(double seconds) {
  metrics_.ObserveDispatchLatency(absl::Seconds(seconds));
  if (samples_ != nullptr) samples_->AddDispatch(seconds);
}

void DeviceReports::OnUrgentBegins(double seconds) {
  metrics_.ObservePreemption(absl::Seconds(seconds));
  if (samples_ != nullptr) samples_->AddUrgent(seconds);
}

std::vector<DeviceTimes> DeviceReports::times() const {
  std::vector<DeviceTimes> times;
  for (const DeviceLedger& ledger : ledgers_) times.push_back(ledger.total());
  return times;
}

void DeviceReports::PublishTimes(int device, int64_t now_ns) {
  const DeviceTimes fresh = ledgers_[device].TakeNew(now_ns - kNewsNs);
  const std::pair<DeviceTime, int64_t> states[] = {
      {DeviceTime::kCompute, fresh.compute_ns},
      {DeviceTime::kBubble, fresh.bubble_ns},
      {DeviceTime::kIdle, fresh.idle_ns},
      {DeviceTime::kFenced, fresh.fenced_ns}};
  for (const auto& [state, ns] : states) {
    metrics_.AddDeviceTime(device, state, absl::Nanoseconds(ns));
  }
  for (int cause = 0; cause < wire::kWaitCauses; ++cause) {
    metrics_.AddBubble(device, static_cast<wire::WaitCause>(cause),
                       absl::Nanoseconds(fresh.bubble_causes_ns[cause]));
  }
  metrics_.AddFilledBubble(device, absl::Nanoseconds(fresh.filled_bubble_ns));
  metrics_.SetBubbleRatio(device, ledgers_[device].BubbleRatio(kWindowNs));
}

// A slot's copies are told when it is done: one that began before the window
// may make it look more than full.
void DeviceReports::PublishLink(int device, int64_t now_ns) {
  LinkUse& link = links_[device];
  LinkUse::Sample& now = link.samples.emplace_back();
  now.at_ns = now_ns;
  std::copy(link.busy_ns, link.busy_ns + wire::kDirections, now.busy_ns);
  while (link.samples.front().at_ns < now_ns - kWindowNs) {
    link.samples.pop_front();
  }
  const LinkUse::Sample& then = link.samples.front();
  for (const wire::Direction direction : wire::kEachDirection) {
    const int d = static_cast<int>(direction);
    const auto busy = static_cast<double>(now.busy_ns[d] - then.busy_ns[d]);
    const auto span = static_cast<double>(now_ns - then.at_ns);
    link.ratio[d] = span > 0 ? std::min(1.0, busy / span) : 0;
    metrics_.SetLinkUtilization(device, direction, link.ratio[d]);
  }
}

void DeviceReports::PublishShares() {
  for (auto& [job, share] : shares_) share *= kShareDecay;
  for (const auto& [job, share] : shares_) {
    metrics_.SetJobShare(job, Share(job));
  }
}

double DeviceReports::Share(const std::string& job) const {
  double sum = 0;
  for (const auto& [id, share] : shares_) sum += share;
  const auto own = shares_.find(job);
  return own == shares_.end() || sum <= 0 ? 0 : own->second / sum;
}

void DeviceReports::SetWorker(DeviceInfo& info) {
  const WorkerInfo& worker =
      pool_.info(pool_.DeviceWorker(static_cast<DeviceId>(info.index)));
  info.state = DeviceState::kStarting;
  if (worker.lost) {
    info.state = DeviceState::kLost;
  } else if (worker.up) {
    info.state = DeviceState::kUp;
  } else if (!worker.taken_out.empty() && worker.pid == 0) {
    info.state = DeviceState::kTakenOut;
  }
  metrics_.SetDeviceOutOfUse(info.index, !worker.taken_out.empty());
  info.worker_pid = worker.pid;
  info.worker_restarts = std::max(0, worker.starts - 1);
}

void DeviceReports::PublishWorkers() {
  MutexLock lock(mutex_);
  for (DeviceInfo& info : infos_) SetWorker(info);
}

void DeviceReports::Publish() {
  const int64_t now = MonotonicNs();
  PublishShares();
  MutexLock lock(mutex_);
  for (int i = 0; i < pool_.device_count(); ++i) {
    PublishTimes(i, now);
    PublishLink(i, now);
    metrics_.SetDeviceMemory(i, static_cast<int64_t>(memory_peak_bytes_[i]));
    const WorkerInfo& worker =
        pool_.info(pool_.DeviceWorker(static_cast<DeviceId>(i)));
    metrics_.SetDevicePinned(i, static_cast<int64_t>(worker.pinned_bytes));
    DeviceInfo& info = infos_[i];
    SetWorker(info);
    info.memory_used_bytes = static_cast<int64_t>(memory_peak_bytes_[i]);
    info.job_id = jobs_[i];
    SetTimes(ledgers_[i].total(), info);
  }
}

std::vector<StatusDevice> DeviceReports::Status() const {
  const int64_t now = MonotonicNs();
  const std::vector<DeviceInfo> infos = Infos();
  std::vector<StatusDevice> all;
  for (size_t i = 0; i < infos.size(); ++i) {
    const DeviceInfo& info = infos[i];
    all.push_back({.index = info.index,
                   .kind = info.kind,
                   .product_name = info.product_name,
                   .state = StateText(info.state),
                   .job = info.job_id,
                   .restarts = info.worker_restarts,
                   .memory_used_bytes = info.memory_used_bytes,
                   .memory_limit_bytes = info.memory_limit_bytes,
                   .times = ledgers_[i].Window(kWindowNs),
                   .bubble_ratio = ledgers_[i].BubbleRatio(kWindowNs),
                   .link_up_ratio = links_[i].ratio[0],
                   .link_down_ratio = links_[i].ratio[1],
                   .slots = histories_[i].Recent(now),
                   .slots_since_ns = histories_[i].since_ns()});
  }
  return all;
}

std::vector<DeviceInfo> DeviceReports::Infos() const {
  MutexLock lock(mutex_);
  return infos_;
}

}  // namespace roundhouse
