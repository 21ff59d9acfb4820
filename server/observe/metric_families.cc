#include "server/observe/metric_families.h"

namespace roundhouse {
namespace {

using prometheus::Registry;
using Bounds = prometheus::Histogram::BucketBoundaries;

CounterFamily& Counter(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

GaugeFamily& Gauge(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

HistogramFamily Histogram(Registry& registry, const char* name,
                          const char* help, const Bounds& bounds) {
  return {prometheus::BuildHistogram().Name(name).Help(help).Register(registry),
          bounds};
}

// Seconds.  Of slots and what is faster.
Bounds ShortTimes() {
  return {1e-5, 2.5e-5, 5e-5,   1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3,
          5e-3, 1e-2,   2.5e-2, 5e-2, 0.1,    0.25, 0.5,  1};
}
Bounds LongTimes() {
  return {1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1,
          2.5,  5,    10,   30,     60,   300, 1800, 7200};
}
// Few: there is one histogram for each method.
Bounds CallTimes() { return {1e-3, 5e-3, 2.5e-2, 0.1, 0.5, 2.5, 10, 60}; }

}  // namespace

DeviceFamilies::DeviceFamilies(Registry& r)
    : time(Counter(r, "roundhouse_device_time_seconds_total",
                   "Wall time of a device by what it did.")),
      bubbles(Counter(r, "roundhouse_device_bubble_seconds_total",
                      "Bubbles by what came last of what the device needed.")),
      filled_bubbles(
          Counter(r, "roundhouse_device_filled_bubble_seconds_total",
                  "Computation of one job while another's slot lacked its "
                  "inputs.")),
      bubble_ratio(
          Gauge(r, "roundhouse_device_bubble_ratio",
                "Bubble share of compute and bubble time over the last 10 s.")),
      up(Gauge(r, "roundhouse_device_up",
               "1 while the device's worker is there.")),
      out_of_use(Gauge(r, "roundhouse_device_out_of_use",
                       "1 while the device is lent, fenced or yielded.")),
      memory(Gauge(r, "roundhouse_device_memory_used_bytes",
                   "Device memory in use, at its highest.")),
      pinned(Gauge(r, "roundhouse_device_pinned_bytes",
                   "Arena bytes that the device's worker has pinned.")) {}

GpuFamilies::GpuFamilies(Registry& r)
    : lost(Gauge(r, "roundhouse_device_gpu_lost",
                 "1 while the driver cannot reach the GPU.")),
      temperature(Gauge(r, "roundhouse_device_temperature_celsius",
                        "Of the GPU's die.")),
      power(Gauge(r, "roundhouse_device_power_watts", "What the GPU draws.")),
      power_limit(Gauge(r, "roundhouse_device_power_limit_watts",
                        "What the GPU may draw.")),
      sm_clock(Gauge(r, "roundhouse_device_sm_clock_hertz",
                     "Clock of the GPU's multiprocessors.")),
      utilization(Gauge(r, "roundhouse_device_nvml_utilization_ratio",
                        "Share of the last second in which a kernel ran.")),
      memory(Gauge(r, "roundhouse_device_nvml_memory_used_bytes",
                   "GPU memory in use, by all processes.")),
      link_bytes(Gauge(r, "roundhouse_pcie_nvml_bytes_per_second",
                       "What crossed the GPU's link, over 20 ms.")),
      link_info(Gauge(r, "roundhouse_pcie_link_info",
                      "1; the link's generation and lanes now.")),
      link_ratio(Gauge(r, "roundhouse_pcie_link_ratio",
                       "The link's rate now of the highest that GPU and slot "
                       "can do.")),
      replays(Counter(r, "roundhouse_pcie_replays_total",
                      "Packets sent again on the GPU's link.")),
      xid_errors(Counter(r, "roundhouse_device_xid_errors_total",
                         "Xid errors of the GPU that the driver reported.")),
      probe_failures(Counter(r, "roundhouse_gpu_probe_failures_total",
                             "GPU probes that failed or hung.")) {}

LinkFamilies::LinkFamilies(Registry& r)
    : bytes(Counter(r, "roundhouse_pcie_transfer_bytes_total",
                    "Bytes copied between host and device.")),
      busy(Counter(r, "roundhouse_pcie_busy_seconds_total",
                   "Time in which a copy was under way.")),
      utilization(Gauge(r, "roundhouse_pcie_utilization_ratio",
                        "Share of the last 10 s in which a copy was under "
                        "way.")),
      rate(Gauge(r, "roundhouse_pcie_calibrated_bytes_per_second",
                 "What the link carries at most.")) {}

SlotFamilies::SlotFamilies(Registry& r)
    : slots(Counter(r, "roundhouse_slots_total",
                    "Slots by result; replayed: lost with its worker, sent "
                    "again.")),
      duration(Histogram(r, "roundhouse_slot_duration_seconds",
                         "Phases of a slot.", ShortTimes())),
      sum_exchanges(Counter(r, "roundhouse_sum_exchanges_total",
                            "Sums of units that wide slots added up between "
                            "their devices; failed: they went down apart "
                            "after all.")),
      dispatch_latency(
          Histogram(r, "roundhouse_slot_dispatch_latency_seconds",
                    "From the event that made a slot possible to its receipt.",
                    ShortTimes())),
      preemption_latency(
          Histogram(r, "roundhouse_preemption_latency_seconds",
                    "From the moment when an urgent job could go to the "
                    "beginning of its next slot.",
                    LongTimes())),
      recovery(Histogram(r, "roundhouse_recovery_duration_seconds",
                         "From a worker's death to its device's next slot.",
                         LongTimes())) {}

StepFamilies::StepFamilies(Registry& r)
    : step(Histogram(r, "roundhouse_step_duration_seconds",
                     "Optimizer steps of all jobs.", LongTimes())),
      optimizer(Histogram(r, "roundhouse_optimizer_duration_seconds",
                          "Reductions and update of one unit in one step.",
                          ShortTimes())) {}

JobFamilies::JobFamilies(Registry& r)
    : loss(Gauge(r, "roundhouse_job_loss", "Training loss of the last step.")),
      steps(Counter(r, "roundhouse_job_steps_total", "Optimizer steps.")),
      tokens(Counter(r, "roundhouse_job_tokens_total",
                     "Target tokens trained on.")),
      loss_scale(Gauge(r, "roundhouse_job_loss_scale",
                       "Loss scale of an fp16 job's last step.")),
      skipped(Counter(r, "roundhouse_job_skipped_steps_total",
                      "Steps of an fp16 job whose gradients overflowed: "
                      "nothing was updated.")),
      expert_max(Gauge(r, "roundhouse_job_expert_max_over_mean_ratio",
                       "Tokens of a layer's busiest expert in the last step, "
                       "over the mean of its experts.")),
      expert_entropy(Gauge(r, "roundhouse_job_expert_entropy_ratio",
                           "Entropy of the shares of a layer's experts in the "
                           "last step, over the highest possible.")),
      experts_unhit(Gauge(r, "roundhouse_job_unhit_experts",
                          "Experts of a layer without a token in the last "
                          "step.")),
      eta(Gauge(r, "roundhouse_job_eta_timestamp_seconds",
                "When the job should end.")),
      share(Gauge(r, "roundhouse_job_service_share_ratio",
                  "The job's share of all jobs' compute time of late.")),
      info(Gauge(r, "roundhouse_job_info",
                 "1; the job's model family, method and owner.")),
      jobs(Gauge(r, "roundhouse_jobs", "Jobs in a state.")),
      queue_wait(Histogram(r, "roundhouse_queue_wait_seconds",
                           "From QUEUED to LOADING.", LongTimes())) {}

UserFamilies::UserFamilies(Registry& r)
    : service(Counter(r, "roundhouse_user_service_seconds_total",
                      "Device time of a user's slots, samples and "
                      "eval_prompts.")),
      lag(Gauge(r, "roundhouse_user_service_lag_seconds",
                "Device time by which the user is behind his fair share of "
                "the last 15 minutes; below 0: ahead.")),
      jobs(Gauge(r, "roundhouse_user_jobs",
                 "Jobs of the user that wait to start, and that have steps to "
                 "compute.")) {}

StorageFamilies::StorageFamilies(Registry& r)
    : arena(Gauge(r, "roundhouse_host_arena_bytes", "Arena bytes in use.")),
      arena_limit(Gauge(r, "roundhouse_host_arena_limit_bytes",
                        "Arena bytes at most.")),
      disk_free(Gauge(r, "roundhouse_disk_free_bytes",
                      "Free bytes of the disk that holds the state.")),
      checkpoint(Histogram(r, "roundhouse_checkpoint_duration_seconds",
                           "Writing a checkpoint.", LongTimes())),
      checkpoint_failures(
          Counter(r, "roundhouse_checkpoint_failures_total",
                  "Checkpoints that could not be written, or did not verify "
                  "when read.")),
      commit(Histogram(r, "roundhouse_db_commit_duration_seconds",
                       "Commits of the job store, the disk included.",
                       ShortTimes())) {}

CallFamilies::CallFamilies(Registry& r)
    : turn(Histogram(r, "roundhouse_event_loop_turn_seconds",
                     "Turns of the daemon's control thread: what was ready at "
                     "once. Everything else waits as long.",
                     ShortTimes())),
      handled(Counter(r, "grpc_server_handled_total",
                      "Calls that ended; of methods that there are not, "
                      "service and method are unknown.")),
      handling(Histogram(r, "grpc_server_handling_seconds",
                         "From a call's arrival to its end.", CallTimes())),
      lost_audit_rows(
          Counter(r, "roundhouse_audit_lost_rows_total",
                  "Rows of the audit that could not be written, of calls that "
                  "were answered.")) {}

}  // namespace roundhouse
