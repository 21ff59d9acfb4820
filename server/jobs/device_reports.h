// What is known of the devices: where their time went, what crossed their
// links, which job they worked for last.
//
// Runs on the event loop's thread, but for Infos.
#ifndef ROUNDHOUSE_SERVER_JOBS_DEVICE_REPORTS_H_
#define ROUNDHOUSE_SERVER_JOBS_DEVICE_REPORTS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/api/engine.h"
#include "server/observe/device_ledger.h"
#include "server/observe/metrics.h"
#include "server/observe/sample_log.h"
#include "server/pool/worker_pool.h"

namespace roundhouse {

struct DeviceReportsOptions {
  uint64_t memory_bytes = 0;  // of each device
  int threads = 1;
  SampleLog* samples = nullptr;  // test only; outlives it
};

class DeviceReports {
 public:
  // All references outlive it.
  DeviceReports(const WorkerPool& pool, ServerMetrics& metrics,
                const DeviceReportsOptions& options);

  // Whether any job has work.
  void SetBusy(bool busy);
  void OnSlot(const std::string& job, DeviceId device, SlotPass pass,
              const wire::SlotDone& done);
  void OnSlotReplayed(DeviceId device);
  void OnSlotFailed(DeviceId device);
  void OnSampleDone(DeviceId device, const wire::SampleDone& done);
  void OnDispatchLatency(double seconds);
  // Per device, since the daemon started.
  std::vector<DeviceTimes> times() const;

  // Brings metrics and Infos up to date; to be called once a second.
  void Publish();
  // As of the last Publish; any thread.
  std::vector<DeviceInfo> Infos() const;

 private:
  void ObserveSlot(SlotPass pass, const wire::SlotDone& done);

  const WorkerPool& pool_;
  ServerMetrics& metrics_;
  SampleLog* const samples_;
  bool busy_ = false;
  std::vector<DeviceLedger> ledgers_;
  std::vector<uint64_t> memory_peak_bytes_;
  std::vector<std::string> jobs_;  // of the newest slot each
  mutable std::mutex mutex_;
  std::vector<DeviceInfo> infos_;  // guarded by mutex_
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_DEVICE_REPORTS_H_
