#include "server/admission/job_queue.h"

#include <algorithm>
#include <utility>

#include "server/store/store_records.h"

namespace roundhouse {
namespace {

constexpr int kDoublings = 7;

// Asks for each owner once.
class Turns {
 public:
  explicit Turns(const JobQueue::TurnOf& turn_of) : turn_of_(turn_of) {}

  const JobQueue::Turn& Of(const JobOwner& owner) {
    const auto [found, fresh] =
        known_.try_emplace(std::pair(owner.project, owner.user));
    if (fresh) found->second = turn_of_(owner);
    return found->second;
  }

 private:
  const JobQueue::TurnOf& turn_of_;
  std::map<std::pair<std::string, std::string>, JobQueue::Turn> known_;
};

// Whether `a` goes before one that has waited longer.
bool Overtakes(const JobQueue::Queued& a, const JobQueue::Queued& b,
               Turns& turns) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.ran || b.ran) return !b.ran;
  return turns.Of(a.owner) < turns.Of(b.owner);
}

}  // namespace

void JobQueue::Add(const Queued& job) {
  const auto after = std::find_if(
      jobs_.begin(), jobs_.end(),
      [&](const Queued& queued) { return queued.priority < job.priority; });
  jobs_.insert(after, job);
}

void JobQueue::AddInOrder(const Queued& job) {
  const auto later =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const Queued& queued) {
        return queued.priority < job.priority ||
               (queued.priority == job.priority &&
                JobNumber(queued.id) > JobNumber(job.id));
      });
  jobs_.insert(later, job);
}

const JobQueue::Queued* JobQueue::First(
    const TurnOf& turn_of,
    const std::function<bool(const Queued&)>& may) const {
  Turns turns(turn_of);
  const Queued* first = nullptr;
  for (const Queued& job : jobs_) {
    if (first != nullptr && !Overtakes(job, *first, turns)) continue;
    if (may(job)) first = &job;
  }
  return first;
}

std::vector<const JobQueue::Queued*> JobQueue::InOrder(const TurnOf& turn_of,
                                                       size_t most) const {
  Turns turns(turn_of);
  std::vector<std::pair<const Queued*, size_t>> all;  // with their places
  for (const Queued& job : jobs_) all.emplace_back(&job, all.size());
  const size_t count = std::min(most, all.size());
  std::partial_sort(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
      [&turns](const auto& a, const auto& b) {
        return a.second < b.second ? !Overtakes(*b.first, *a.first, turns)
                                   : Overtakes(*a.first, *b.first, turns);
      });
  std::vector<const Queued*> first;
  for (size_t i = 0; i < count; ++i) first.push_back(all[i].first);
  return first;
}

std::vector<JobOwner> JobQueue::Owners() const {
  std::vector<JobOwner> owners;
  for (const Queued& job : jobs_) owners.push_back(job.owner);
  return owners;
}

const JobQueue::Queued* JobQueue::Find(const std::string& id) const {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(),
                   [&id](const Queued& job) { return job.id == id; });
  return found == jobs_.end() ? nullptr : &*found;
}

void JobQueue::SetHostBytes(const std::string& id, uint64_t bytes) {
  for (Queued& job : jobs_) {
    if (job.id == id) job.host_bytes = bytes;
  }
}

void JobQueue::Promise(const std::string& id, absl::Time start) {
  for (Queued& job : jobs_) {
    if (job.id == id && !job.promised.has_value()) job.promised = start;
  }
}

void JobQueue::Remove(const std::string& id) {
  std::erase_if(jobs_, [&](const Queued& job) { return job.id == id; });
}

void JobQueue::SetPriority(const std::string& id, Priority priority) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(),
                   [&](const Queued& queued) { return queued.id == id; });
  if (found == jobs_.end()) return;
  Queued job = *found;
  jobs_.erase(found);
  job.priority = priority;
  AddInOrder(job);
}

void JobQueue::WaitForRoom(const std::string& id, absl::Time now) {
  Untaken& untaken = without_room_[id];
  untaken.due =
      now + std::min(kMostRetryUntaken, kRetryUntaken * (1 << untaken.tries));
  untaken.tries = std::min(untaken.tries + 1, kDoublings);
}

void JobQueue::WaitForRoomAgain(const std::string& id, absl::Time now) {
  without_room_[id].due = now + kRetryUntaken;
}

std::vector<std::string> JobQueue::WithoutRoom() const {
  std::vector<std::string> ids;
  for (const auto& [id, untaken] : without_room_) ids.push_back(id);
  return ids;
}

bool JobQueue::IsDue(const std::string& id, absl::Time now) const {
  const auto found = without_room_.find(id);
  return found != without_room_.end() && now >= found->second.due;
}

}  // namespace roundhouse
