#include "server/admission/job_queue.h"

#include <algorithm>

#include "server/store/store_records.h"

namespace roundhouse {
namespace {

constexpr int kDoublings = 7;

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
    const std::function<bool(const Queued&)>& may) const {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), may);
  return found == jobs_.end() ? nullptr : &*found;
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
