// What is known of the devices: where their time went, what crossed their
// links, which job they worked for last.
//
// Runs on the event loop's thread, but for Infos.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_DEVICE_REPORTS_H_
#define ROUNDHOUSE_SERVER_OBSERVE_DEVICE_REPORTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/observe/device_info.h"
#include "server/observe/device_ledger.h"
#include "server/observe/metrics.h"
#include "server/observe/slot_history.h"
#include "server/observe/status_board.h"
#include "server/observe/timing_log.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

struct DeviceReportsOptions {
  uint64_t memory_bytes = 0;  // of each device
  int threads = 1;
  double link_gbps = 0;  // 10^9 bits per second each way; 0: as workers say
  TimingLog* samples = nullptr;  // test only; outlives it
};

class DeviceReports {
 public:
  // All references outlive it.
  DeviceReports(const WorkerPool& pool, ServerMetrics& metrics,
                const DeviceReportsOptions& options);

  // Whether any job has work.
  void SetBusy(bool busy);
  // What the attempt is, should the device begin it.
  void OnSlotSent(DeviceId device, uint64_t attempt, const SlotFacts& slot);
  // Any message of the device's worker that is not an answer to its job.
  void OnMessage(DeviceId device, const wire::Message& message);
  // What the device's compute thread did, in its order.
  void OnSlotStarted(DeviceId device, uint64_t attempt,
                     const wire::SlotStarted& started);
  void OnMicroBatchDone(DeviceId device, const wire::MicroBatchDone& done);
  void OnBackfillComputed(DeviceId device, uint64_t attempt,
                          const wire::BackfillComputed& computed);
  // Withdrawn, or failed.
  void OnGivenUp(DeviceId device, uint64_t attempt);
  void OnWorkerUp(DeviceId device);
  void OnWorkerDown(DeviceId device);
  void OnDeviceLost(DeviceId device);
  void OnSlot(const std::string& job, DeviceId device, SlotKind kind,
              const wire::SlotDone& done);
  void OnSlotReplayed(DeviceId device);
  void OnSlotFailed(DeviceId device);
  void OnSampleDone(DeviceId device, const wire::SampleDone& done);
  void OnDispatchLatency(double seconds);
  void OnUrgentBegins(double seconds);
  // The job ended: it has no share any more.
  void ForgetJob(const std::string& job);
  // Per device, since the daemon started.
  std::vector<DeviceTimes> times() const;
  // One a device, as long as this lives.
  std::vector<DeviceLedger>& ledgers() { return ledgers_; }

  // Brings metrics and Infos up to date; to be called once a second.
  void Publish();
  // What is told of workers alone, when one came, went, or is to.
  void PublishWorkers();
  // As of the last Publish.
  std::vector<StatusDevice> Status() const;
  // The job's share of all jobs' compute time of late, 0 to 1.
  double Share(const std::string& job) const;
  // As of the last Publish or PublishWorkers; any thread.
  std::vector<DeviceInfo> Infos() const;

 private:
  // Copies of one device's link, by direction.
  struct LinkUse {
    int64_t busy_ns[wire::kDirections] = {};  // since the daemon started
    struct Sample {
      int64_t at_ns = 0;
      int64_t busy_ns[wire::kDirections] = {};
    };
    std::deque<Sample> samples;            // of the last 10 s
    double ratio[wire::kDirections] = {};  // of that time
  };

  // Bytes per second.
  void SetLinkRates(int device, double h2d, double d2h);
  void ObserveSlot(SlotKind kind, const wire::SlotDone& done);
  void AddTransfers(int device, const wire::SlotDone& done);
  void PublishTimes(int device, int64_t now_ns);
  void PublishLink(int device, int64_t now_ns);
  void PublishShares();
  // What is told of its worker.
  void SetWorker(DeviceInfo& info);

  const WorkerPool& pool_;
  ServerMetrics& metrics_;
  const bool link_is_given_;
  TimingLog* const samples_;
  bool busy_ = false;
  std::vector<DeviceLedger> ledgers_;
  std::vector<SlotHistory> histories_;
  std::vector<std::map<uint64_t, SlotFacts>> sent_;  // by attempt; not begun
  // The newest slot of each that is computed in waits of the others.
  struct Backfill {
    uint64_t attempt = 0;
    SlotFacts facts;
    bool told = false;  // a part of it
  };
  std::vector<Backfill> backfill_;
  std::vector<uint64_t> computing_;  // attempts, of the slot started last
  std::vector<LinkUse> links_;
  // By job: its compute nanoseconds, those of long ago worth less.
  std::map<std::string, double> shares_;
  std::vector<uint64_t> memory_peak_bytes_;
  std::vector<std::string> jobs_;  // of the newest slot each
  mutable Mutex mutex_;
  std::vector<DeviceInfo> infos_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_DEVICE_REPORTS_H_
