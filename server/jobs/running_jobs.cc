#include "server/jobs/running_jobs.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/log.h"
#include "server/store/store_records.h"

namespace roundhouse {

RunningJobs::RunningJobs(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                         ServerMetrics& metrics,
                         const DeviceReportsOptions& devices,
                         const PeerGroup::Options& peers)
    : pool_(pool),
      metrics_(metrics),
      samples_(devices.samples),
      bases_(arena),
      files_line_(pool),
      dispatch_(loop, pool, peers),
      devices_(pool, metrics, devices),
      users_(metrics) {}

// --- the jobs ---

RunningJob* RunningJobs::Find(const std::string& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

void RunningJobs::ForEach(const std::function<void(RunningJob&)>& tell) {
  // What is told may end its job.
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::shared_ptr<RunningJob> run = next->second;
    tell(*run);
    next = jobs_.upper_bound(run->id());
  }
}

void RunningJobs::Add(std::shared_ptr<RunningJob> job) {
  const std::string id = job->id();
  jobs_[id] = std::move(job);
}

std::shared_ptr<RunningJob> RunningJobs::Take(const std::string& id) {
  std::shared_ptr<RunningJob> taken = jobs_.extract(id).mapped();
  std::erase_if(taken_, [](const auto& job) { return job.expired(); });
  taken_.push_back(taken);
  return taken;
}

bool RunningJobs::FreesMemory() const {
  return std::any_of(taken_.begin(), taken_.end(),
                     [](const auto& job) { return !job.expired(); });
}

int64_t RunningJobs::PlacesTaken() const {
  return std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return !entry.second->waits();
  });
}

std::vector<JobOwner> RunningJobs::Owners() const {
  std::vector<JobOwner> owners;
  for (const auto& [id, run] : jobs_) {
    if (!run->waits()) owners.push_back(run->owner());
  }
  return owners;
}

std::vector<HostHolder> RunningJobs::HostHolders() const {
  std::vector<HostHolder> holders;
  for (const auto& [id, run] : jobs_) {
    holders.push_back({.owner = run->owner(),
                       .job = static_cast<JobId>(JobNumber(id).value_or(0)),
                       .bytes = run->runner().host_use().total()});
  }
  return holders;
}

OwnerUse RunningJobs::HostNeeds() const {
  OwnerUse needs;
  for (const auto& [id, run] : jobs_) {
    needs.Add(run->owner(), static_cast<int64_t>(run->need().total()));
  }
  return needs;
}

uint64_t RunningJobs::TableBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, run] : jobs_) bytes += run->table_bytes();
  return bytes;
}

void RunningJobs::PublishArena(uint64_t used_bytes) {
  HostUse use;
  for (const auto& [id, run] : jobs_) {
    const HostUse of_job = run->runner().host_use();
    use.weight_bytes += of_job.weight_bytes;
    use.optimizer_bytes += of_job.optimizer_bytes;
    use.gradient_bytes += of_job.gradient_bytes;
    use.activation_bytes += of_job.activation_bytes;
  }
  const std::pair<ArenaUse, uint64_t> kinds[] = {
      {ArenaUse::kWeights, use.weight_bytes},
      {ArenaUse::kOptimizer, use.optimizer_bytes},
      {ArenaUse::kGradients, use.gradient_bytes},
      {ArenaUse::kActivations, use.activation_bytes},
      {ArenaUse::kOther, used_bytes - use.total()}};
  for (const auto& [kind, bytes] : kinds) {
    metrics_.SetHostArena(kind, static_cast<int64_t>(bytes));
  }
}

void RunningJobs::PublishUsers(const std::vector<JobOwner>& queued,
                               const ShareWeights& weights) {
  std::vector<JobOwner> running, backfill;
  for (const auto& [id, run] : jobs_) {
    if (!run->has_steps() || run->held().has_value()) continue;
    (run->priority() == Priority::kBackfill ? backfill : running)
        .push_back(run->owner());
  }
  users_.Publish({.queued = queued,
                  .running = running,
                  .backfill = backfill,
                  .waiting = dispatch_.dispatcher().Waiting(),
                  .weights = weights},
                 MonotonicNs());
}

void RunningJobs::UpdateBusy() {
  const bool busy =
      std::any_of(jobs_.begin(), jobs_.end(),
                  [](const auto& entry) { return entry.second->has_steps(); });
  devices_.SetBusy(busy);
  recorder_.SetBusy(busy, MonotonicNs());
}

// --- the workers ---

bool RunningJobs::IsDevice(WorkerId worker) const {
  return Number(worker) < pool_.device_count();
}

void RunningJobs::Note(const std::string& text) {
  ForEach([&text](RunningJob& run) { run.OnNote(text); });
}

void RunningJobs::OnWorkerUp(WorkerId worker) {
  if (IsDevice(worker)) {
    metrics_.SetDeviceUp(Number(worker));
    devices_.OnWorkerUp(static_cast<DeviceId>(Number(worker)));
    recorder_.OnDeviceUp(Number(worker), MonotonicNs());
  }
  ForEach([worker](RunningJob& run) { run.runner().OnWorkerUp(worker); });
  dispatch_.OnWorkerUp(worker);
  if (worker == pool_.FilesWorker()) files_line_.OnWorkerUp();
  if (sampler_ != nullptr) sampler_->OnWorkerUp(worker);
}

void RunningJobs::OnMessage(WorkerId worker, const wire::Message& message) {
  const auto* op = std::get_if<wire::HostOpDone>(&message.body);
  if (op != nullptr && samples_ != nullptr) samples_->AddHostOp(*op);
  if (IsDevice(worker)) {
    devices_.OnMessage(static_cast<DeviceId>(Number(worker)), message);
    recorder_.OnDeviceMessage(Number(worker), message, MonotonicNs());
  }
  dispatch_.OnMessage(worker, message);
}

void RunningJobs::OnWorkerDown(WorkerId worker, const std::string& why) {
  if (IsDevice(worker)) {
    metrics_.SetDeviceDown(Number(worker));
    devices_.OnWorkerDown(static_cast<DeviceId>(Number(worker)));
    recorder_.OnWorkerDown(Number(worker), MonotonicNs());
  }
  if (sampler_ != nullptr) sampler_->OnWorkerDown(worker);
  // OnDeviceLost tells of one that was taken out.
  if (pool_.info(worker).taken_out.empty()) Note(why);
  dispatch_.OnWorkerDown(worker);
}

void RunningJobs::OnStartFailed(WorkerId, const std::string& why) { Note(why); }

void RunningJobs::OnDeviceLost(DeviceId device, const std::string& why) {
  if (pool_.info(pool_.DeviceWorker(device)).lost) {
    RH_LOG(kError) << "device " << Number(device) << " is lost: " << why;
  }
  devices_.OnDeviceLost(device);
  recorder_.OnDeviceLost(Number(device), MonotonicNs());
  ForEach([device, &why](RunningJob& run) {
    run.runner().OnDeviceLost(device, why);
  });
  dispatch_.OnDeviceLost(device);
  if (sampler_ != nullptr) sampler_->OnDeviceLost();
}

}  // namespace roundhouse
