#include "server/jobs/device_reports.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "server/pool/event_loop.h"

namespace roundhouse {
namespace {

constexpr int64_t kBubbleWindowNs = int64_t{10} * 1000000000;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

SlotPassLabel LabelOf(SlotPass pass) {
  switch (pass) {
    case SlotPass::kForward:
      return SlotPassLabel::kForward;
    case SlotPass::kFused:
      return SlotPassLabel::kFused;
    case SlotPass::kBackward:
      return SlotPassLabel::kBackward;
    case SlotPass::kEvaluate:
      return SlotPassLabel::kEvaluate;
  }
  return SlotPassLabel::kForward;
}

}  // namespace

DeviceReports::DeviceReports(const WorkerPool& pool, ServerMetrics& metrics,
                             const DeviceReportsOptions& options)
    : pool_(pool), metrics_(metrics), samples_(options.samples) {
  for (int i = 0; i < pool.device_count(); ++i) {
    ledgers_.emplace_back(MonotonicNs());
    memory_peak_bytes_.push_back(0);
    jobs_.emplace_back();
    metrics_.AddDevice(i);
    DeviceInfo device;
    device.index = i;
    device.kind = "cpu";
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

void DeviceReports::ObserveSlot(SlotPass pass, const wire::SlotDone& done) {
  const SlotPassLabel label = LabelOf(pass);
  const std::pair<SlotPhase, int64_t> phases[] = {
      {SlotPhase::kWait, done.wait_ns},
      {SlotPhase::kHostToDevice, done.h2d_ns},
      {SlotPhase::kCompute, done.compute_ns},
      {SlotPhase::kDeviceToHost, done.d2h_ns}};
  for (const auto& [phase, ns] : phases) {
    metrics_.ObserveSlot(label, phase, absl::Nanoseconds(ns));
  }
}

void DeviceReports::OnSlot(const std::string& job, DeviceId device,
                           SlotPass pass, const wire::SlotDone& done) {
  const int index = Number(device);
  ledgers_[index].AddSlot(done.ended_ns, done.compute_ns);
  memory_peak_bytes_[index] =
      std::max(memory_peak_bytes_[index], done.device_memory_peak_bytes);
  jobs_[index] = job;
  metrics_.CountSlot(index, SlotResult::kOk);
  ObserveSlot(pass, done);
  if (samples_ != nullptr) samples_->AddSlot(index, done);
  for (int d = 0; d < wire::kDirections; ++d) {
    for (int p = 0; p < wire::kPurposes; ++p) {
      metrics_.AddTransfer(index, static_cast<TransferDirection>(d),
                           static_cast<TransferPurpose>(p),
                           static_cast<int64_t>(done.bytes[d][p]));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  DeviceInfo& info = infos_[index];
  ++info.slots;
  for (int p = 0; p < wire::kPurposes; ++p) {
    info.h2d_bytes += static_cast<int64_t>(done.bytes[0][p]);
    info.d2h_bytes += static_cast<int64_t>(done.bytes[1][p]);
  }
}

void DeviceReports::OnSlotReplayed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kReplayed);
}

void DeviceReports::OnSlotFailed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kFailed);
}

void DeviceReports::OnSampleDone(DeviceId device,
                                 const wire::SampleDone& done) {
  const auto bytes = static_cast<int64_t>(done.weight_bytes);
  metrics_.AddTransfer(
      Number(device), static_cast<TransferDirection>(wire::Direction::kH2D),
      static_cast<TransferPurpose>(wire::Purpose::kWeights), bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  infos_[Number(device)].h2d_bytes += bytes;
}

void DeviceReports::OnDispatchLatency(double seconds) {
  metrics_.ObserveDispatchLatency(absl::Seconds(seconds));
  if (samples_ != nullptr) samples_->AddDispatch(seconds);
}

std::vector<DeviceTimes> DeviceReports::times() const {
  std::vector<DeviceTimes> times;
  for (const DeviceLedger& ledger : ledgers_) times.push_back(ledger.total());
  return times;
}

void DeviceReports::Publish() {
  const int64_t now = MonotonicNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < pool_.device_count(); ++i) {
    const DeviceTimes fresh = ledgers_[i].TakeNew(now);
    metrics_.AddDeviceTime(i, DeviceTime::kCompute,
                           absl::Nanoseconds(fresh.compute_ns));
    metrics_.AddDeviceTime(i, DeviceTime::kBubble,
                           absl::Nanoseconds(fresh.bubble_ns));
    metrics_.AddDeviceTime(i, DeviceTime::kIdle,
                           absl::Nanoseconds(fresh.idle_ns));
    metrics_.SetBubbleRatio(i, ledgers_[i].BubbleRatio(kBubbleWindowNs));
    metrics_.SetDeviceMemory(i, static_cast<int64_t>(memory_peak_bytes_[i]));
    const WorkerInfo& worker =
        pool_.info(pool_.DeviceWorker(static_cast<DeviceId>(i)));
    DeviceInfo& info = infos_[i];
    info.state = worker.lost ? DeviceState::kLost
                 : worker.up ? DeviceState::kUp
                             : DeviceState::kStarting;
    info.worker_pid = worker.pid;
    info.worker_restarts = std::max(0, worker.starts - 1);
    info.memory_used_bytes = static_cast<int64_t>(memory_peak_bytes_[i]);
    info.job_id = jobs_[i];
    info.compute_seconds = Seconds(ledgers_[i].total().compute_ns);
    info.bubble_seconds = Seconds(ledgers_[i].total().bubble_ns);
    info.idle_seconds = Seconds(ledgers_[i].total().idle_ns);
  }
}

std::vector<DeviceInfo> DeviceReports::Infos() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return infos_;
}

}  // namespace roundhouse
