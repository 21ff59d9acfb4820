#include "server/steps/dispatch_loop.h"

#include <utility>
#include <variant>
#include <vector>

#include "base/wire/words.h"

namespace roundhouse {

// A worker refuses more.
static_assert(DispatcherOptions{}.max_device_slots +
                  DispatcherOptions{}.more_urgent_slots +
                  DispatcherOptions{}.max_backfill_slots <=
              wire::kMaxDispatchedSlots);

DispatchLoop::DispatchLoop(EventLoop& loop, WorkerPool& pool,
                           const PeerGroup::Options& peers)
    : loop_(loop), pool_(pool), peers_(loop, pool, peers) {
  peers_.OnOver([this] {
    for (const auto& [id, job] : jobs_) job->OnPeersOver();
  });
}

void DispatchLoop::Add(JobId id, const JobShape& shape, const Claim& claim,
                       Job* job) {
  dispatcher_.AddJob(id, shape, claim.owner, claim.priority);
  jobs_[id] = job;
}

void DispatchLoop::Remove(JobId id) {
  dispatcher_.RemoveJob(id);
  jobs_.erase(id);
}

void DispatchLoop::ExecuteOne(const Action& action, JobId job,
                              const Enabler& by) {
  const JobId id = std::visit([](const auto& a) { return a.job; }, action);
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  found->second->Execute(action, id == job ? by : Enabler{});
}

void DispatchLoop::CarryOut(JobId job, const Enabler& by) {
  if (carrying_out_) return;
  carrying_out_ = true;
  while (true) {
    const std::vector<Action> actions = dispatcher_.TakeActions();
    if (actions.empty()) break;
    for (const Action& action : actions) ExecuteOne(action, job, by);
  }
  carrying_out_ = false;
  if (!leaving_.empty()) TellVacated();
  // Answers that wait let devices go on; what jobs tell of them does not.
  if (std::exchange(after_actions_due_, true)) return;
  loop_.WhenIdle([this, here = std::weak_ptr<bool>(here_)] {
    if (!here.expired()) AfterActions();
  });
}

void DispatchLoop::AfterActions() {
  after_actions_due_ = false;
  std::vector<JobId> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (const JobId id : ids) {
    // One may end another's stay, or its own.
    const auto job = jobs_.find(id);
    if (job != jobs_.end()) job->second->AfterActions();
  }
}

void DispatchLoop::Vacate(DeviceId device, std::function<void()> vacated) {
  leaving_[device] = std::move(vacated);
  dispatcher_.DeviceLeaves(device);
  CarryOut();
}

void DispatchLoop::Stay(DeviceId device) {
  leaving_.erase(device);
  dispatcher_.DeviceStays(device);
  CarryOut();
}

bool DispatchLoop::IsVacant(DeviceId device) const {
  return !pool_.up(pool_.DeviceWorker(device)) || !dispatcher_.HasSlots(device);
}

void DispatchLoop::TellVacated() {
  for (auto next = leaving_.begin(); next != leaving_.end();) {
    const auto leaves = next++;
    if (!IsVacant(leaves->first)) continue;
    loop_.After(absl::ZeroDuration(), [this, device = leaves->first,
                                       here = std::weak_ptr<bool>(here_)] {
      // It may stay, or leave anew, by now.
      if (here.expired() || !leaving_.contains(device) || !IsVacant(device)) {
        return;
      }
      leaving_.extract(device).mapped()();
    });
  }
}

void DispatchLoop::OnWorkerUp(WorkerId worker) {
  if (worker == pool_.FilesWorker()) return;
  if (worker == pool_.HostWorker()) {
    dispatcher_.HostUp();
  } else {
    dispatcher_.DeviceUp(static_cast<DeviceId>(Number(worker)));
    peers_.OnWorkerUp(worker);
  }
  CarryOut();
}

void DispatchLoop::OnWorkerDown(WorkerId worker) {
  if (worker == pool_.FilesWorker()) return;
  peers_.OnWorkerDown(worker);
  if (worker == pool_.HostWorker()) {
    dispatcher_.HostDown();
  } else {
    dispatcher_.DeviceDown(static_cast<DeviceId>(Number(worker)));
  }
  CarryOut();
}

void DispatchLoop::OnDeviceLost(DeviceId device) {
  peers_.OnDeviceLost(device);
  dispatcher_.DeviceLost(device);
  CarryOut();
}

}  // namespace roundhouse
