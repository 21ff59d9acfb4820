// History: what is looked at after every event.
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/job_state.h"
#include "server/jobs/transitions.h"
#include "server/sample/sample_run.h"
#include "tests/sim/history.h"

namespace roundhouse::sim {

// --- what workers do ---

void History::OnBegins(const Order& order) {
  const auto mix = [this](uint64_t value) {
    digest_ = (digest_ ^ value) * 0x100000001b3 + (digest_ >> 29);
  };
  mix(static_cast<uint64_t>(absl::ToUnixNanos(server_->now())));
  mix(static_cast<uint64_t>(Number(order.worker)) << 32 | order.body.index());
  if (const auto* const slot = std::get_if<wire::RunSlot>(&order.body)) {
    mix(slot->job << 32 | slot->slot);
    ++counts_.slots;
    CheckActive(slot->job, "a slot");
  } else if (const auto* const sample =
                 std::get_if<wire::RunSample>(&order.body)) {
    mix(sample->sample);
    if ((sample->job & kSamplingNumber) == 0)
      CheckActive(sample->job, "a sample");
  }
}

// A device begins to work for the job.
void History::CheckActive(uint64_t number, const std::string& what) {
  Look();
  const std::string id = NameOfJob(static_cast<int64_t>(number));
  const Job& job = jobs_[id];
  // The store's thread may not have told yet of what it has written.
  if (!IsActive(job.state)) LookNow();
  if (IsActive(job.state)) return;
  Break(absl::StrCat(id, " is ", JobStateName(job.state), " and ", what,
                     " of it begins"));
}

void History::OnDone(const Order& order) {
  const auto* const op = std::get_if<wire::HostOp>(&order.body);
  if (op == nullptr || op->kind != HostOpKind::kUpdate) return;
  const std::string id = NameOfJob(static_cast<int64_t>(op->job));
  Job& job = jobs_[id];
  const auto found = job.updates.find(op->unit);
  if (found != job.updates.end()) {
    const auto [step, operation] = found->second;
    const bool again = op->step == step && op->operation == operation;
    if (!again && op->step != step + 1) {
      Break(absl::StrCat(id, ": unit ", op->unit, " is updated in step ",
                         op->step, " after step ", step));
    }
  } else if (op->step > job.last_step + 1) {
    Break(absl::StrCat(id, " goes on with step ", op->step, " after step ",
                       job.last_step));
  }
  job.last_step = std::max(job.last_step, op->step);
  job.updates[op->unit] = {op->step, op->operation};
}

// --- what the store says ---

void History::Look() {
  if (server_->store_told()) LookNow();
}

void History::LookNow() {
  while (true) {
    const auto changes = server_->store().ChangesAfter(revision_, "", 100);
    if (!changes.ok()) return Break(std::string(changes.status().message()));
    for (const JobChange& change : *changes) OnChange(change);
    if (changes->size() < 100) return;
  }
}

void History::OnChange(const JobChange& change) {
  revision_ = change.event.revision;
  const auto found = jobs_.find(change.event.job_id);
  if (found == jobs_.end()) {  // it is being submitted
    jobs_[change.event.job_id];
    return;
  }
  Job& job = found->second;
  if (change.event.type == "note") OnNote(change.event.message, job);
  const JobState state = change.event.state;
  if (state != job.state) {
    const absl::Status arrow = CheckTransition(job.state, state);
    if (!arrow.ok()) {
      Break(absl::StrCat(found->first, ": ", std::string(arrow.message())));
    }
    Say(absl::StrCat(found->first, " is ", JobStateName(state), " ",
                     JobReasonName(change.event.reason), " at step ",
                     change.event.step, " ", change.event.message));
    if (job.told_to_pause && job.state == JobState::kPaused &&
        state == JobState::kQueued) {
      Break(absl::StrCat(found->first, " was told to pause and is QUEUED"));
    }
    // From here on it may begin at a checkpoint.
    if (state == JobState::kLoading) job.updates.clear();
    if (change.event.reason == JobReason::kStorageFull) ++counts_.held;
    if (state == JobState::kFinalizing) CheckUpdates(found->first, job);
  }
  const bool ends_work = state == JobState::kPausing ||
                         state == JobState::kCancelling ||
                         state == JobState::kFinalizing;
  job.place_given_up =
      ends_work && (job.place_given_up || job.state == JobState::kPaused ||
                    change.event.reason == JobReason::kGivesWay);
  job.state = state;
  job.gives_way = change.job.reason == JobReason::kGivesWay;
  job.memory_kept = change.job.progress.memory_kept;
  job.awaits_room = state == JobState::kPaused &&
                    absl::StrContains(change.job.message, "goes on by itself");
}

// An event's text, or a line of a log.
void History::OnNote(const std::string& text, Job& job) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text, "no samples after step ");
  int64_t step = 0;
  if (parts.size() != 2 ||
      !absl::SimpleAtoi(parts[1].substr(0, parts[1].find(':')), &step)) {
    return;
  }
  job.unsampled.insert(step);
}

// A kill loses the warnings that the store refused; the log has them.
void History::ReadLog(const std::string& path, Job& job) {
  std::ifstream log(path);
  for (std::string line; std::getline(log, line);) OnNote(line, job);
}

// None was left out in the last step.
void History::CheckUpdates(const std::string& id, const Job& job) {
  uint64_t last = 0;
  for (const auto& [unit, update] : job.updates) {
    last = std::max(last, update.first);
  }
  for (const auto& [unit, update] : job.updates) {
    if (update.first == last) continue;
    Break(absl::StrCat(id, " is finalizing after step ", last, "; unit ", unit,
                       " was updated last in step ", update.first));
  }
}

void History::CheckRunning() {
  // One that is over, and not stored so, has left its place.
  if (StoreMayLag()) return;
  int running = 0;
  std::map<std::string, int> of_user;
  for (const auto& [id, job] : jobs_) {
    if (!IsActive(job.state) || job.memory_kept || job.place_given_up) continue;
    ++running;
    const std::string& user = job.request.caller.user;
    if (++of_user[user] > max_of_user_) {
      Break(absl::StrCat("jobs of ", user, " run: ", of_user[user], "; ",
                         max_of_user_, " may"));
    }
  }
  if (running > max_running_) {
    Break(absl::StrCat(running, " jobs run; ", max_running_, " may"));
  }
}

// Its slot ended or was given up, and its worker is gone.
void History::CheckLent() {
  const absl::Duration latest = kVacateLimit + absl::Seconds(2);
  const DeviceLoanList loans = server_->loans().Now();
  for (int i = 0; i < devices_; ++i) {
    if (!loans[i].has_value() || server_->now() < loans[i]->since + latest) {
      continue;
    }
    SimWorkers& workers = server_->workers();
    if (!workers.up(workers.DeviceWorker(static_cast<DeviceId>(i)))) continue;
    Break(absl::StrCat(TextOf(i, *loans[i]), ", and its worker is up"));
  }
}

void History::CheckSamples() {
  const absl::Status looked = samples_.Look(server_->now());
  if (!looked.ok()) Break(std::string(looked.message()));
}

void History::Pass(absl::Duration time) {
  server_->RunFor(time, [this] {
    if (!broken_.ok()) return;
    Look();
    CheckRunning();
    CheckLent();
    CheckSamples();
  });
}

}  // namespace roundhouse::sim
