#include "tests/sim/sim_workers.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/wire/words.h"
#include "tests/fakes/answers.h"

namespace roundhouse::sim {
namespace {

// Between a worker and whoever waits for what it says or raises.
constexpr absl::Duration kLatency = absl::Microseconds(20);

}  // namespace

SimWorkers::SimWorkers(EventLoop& loop, HostArena& arena,
                       const SimWorkersOptions& options)
    : WorkerPool(options.device_count, {}),
      loop_(loop),
      arena_(arena),
      options_(options),
      random_(options.seed),
      workers_(static_cast<size_t>(options.device_count) + 2) {
  At(HostWorker()).info.role = WorkerRole::kHost;
  At(FilesWorker()).info.role = WorkerRole::kFiles;
}

void SimWorkers::Start(Listener* listener) {
  listener_ = listener;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].info.taken_out.empty()) continue;
    StartLater(static_cast<WorkerId>(i));
  }
}

absl::Duration SimWorkers::Draw(absl::Duration least, absl::Duration most) {
  const double share = static_cast<double>(random_() >> 11) * 0x1p-53;
  return least + share * (most - least);
}

// --- deaths ---

void SimWorkers::StartLater(WorkerId id) {
  ++At(id).life;  // an earlier start comes no more
  ++At(id).info.starts;
  After(id, Draw(absl::Milliseconds(100), absl::Seconds(3)), [this, id] {
    At(id).info.up = true;
    listener_->OnWorkerUp(id);
  });
}

void SimWorkers::Die(WorkerId id, const std::string& why) {
  Worker& worker = At(id);
  ++worker.life;
  worker.waiting.clear();
  worker.running.reset();
  worker.looks = false;
  if (!std::exchange(worker.info.up, false)) return;
  worker.replies.Lose(id, why);
  listener_->OnWorkerDown(id, why);
}

void SimWorkers::Kill(WorkerId id) {
  if (!up(id)) return;
  Die(id, absl::StrCat("worker ", Number(id), " killed by signal 9"));
  StartLater(id);
}

void SimWorkers::Lose(DeviceId device) {
  const WorkerId id = DeviceWorker(device);
  if (gone(device)) return;
  At(id).info.lost = true;
  const std::string why = absl::StrCat("device ", Number(device), " is gone");
  Die(id, why);
  listener_->OnDeviceLost(device, why);
}

// An idle worker ends at once.
void SimWorkers::TakeOut(DeviceId device, const std::string& why) {
  const WorkerId id = DeviceWorker(device);
  if (!At(id).info.taken_out.empty()) return;
  At(id).info.taken_out = why;
  At(id).info.lost = false;
  if (!up(id)) ++At(id).life;  // nor does it start
  loop_.After(Draw(absl::ZeroDuration(), absl::Seconds(1)), [this, device, id] {
    const std::string out = At(id).info.taken_out;
    if (out.empty()) return;
    Die(id, out);
    listener_->OnDeviceLost(device, out);
  });
}

void SimWorkers::BringBack(DeviceId device) {
  const WorkerId id = DeviceWorker(device);
  if (!gone(device)) return;
  At(id).info.lost = false;
  At(id).info.taken_out.clear();
  if (!up(id)) StartLater(id);
}

void SimWorkers::After(WorkerId id, absl::Duration delay,
                       std::function<void()> then) {
  loop_.After(delay, [this, id, life = At(id).life, then = std::move(then)] {
    if (At(id).life == life) then();
  });
}

// --- commands ---

uint64_t SimWorkers::Send(WorkerId id, wire::Body body, ReplyHandler* handler) {
  Worker& worker = At(id);
  if (!worker.info.up) return 0;
  const uint64_t attempt = worker.next_attempt++;
  if (const auto* const job = std::get_if<wire::ConfigureJob>(&body)) {
    if (handler != nullptr) worker.replies.Expect(attempt, handler);
    After(id, kLatency, [this, id, attempt, number = job->job] {
      Tell(id, {attempt, wire::JobConfigured{number}});
    });
    return attempt;
  }
  if (std::holds_alternative<wire::ReleaseJob>(body)) return attempt;
  if (const auto* const turn = std::get_if<wire::SetTurn>(&body)) {
    for (Order& order : worker.waiting) {
      if (order.attempt != turn->target_attempt) continue;
      std::get<wire::RunSlot>(order.body).turn = turn->turn;
    }
    return attempt;
  }
  if (handler != nullptr) worker.replies.Expect(attempt, handler);
  worker.waiting.push_back({id, attempt, std::move(body)});
  if (worker.info.role == WorkerRole::kDevice) {
    const auto is_slot = [](const Order& order) {
      return std::holds_alternative<wire::RunSlot>(order.body);
    };
    const auto waiting =
        std::count_if(worker.waiting.begin(), worker.waiting.end(), is_slot);
    const bool one_runs =
        worker.running.has_value() && is_slot(worker.running->order);
    ROUNDHOUSE_CHECK(waiting + (one_runs ? 1 : 0) <= wire::kMaxDispatchedSlots);
  }
  GoOnLater(id, kLatency);
  return attempt;
}

void SimWorkers::Forget(const ReplyHandler* handler) {
  for (Worker& worker : workers_) worker.replies.Forget(handler);
}

void SimWorkers::Withdraw(DeviceId device, uint64_t attempt) {
  const WorkerId id = DeviceWorker(device);
  Worker& worker = At(id);
  if (!worker.info.up) return;
  const auto found =
      std::find_if(worker.waiting.begin(), worker.waiting.end(),
                   [attempt](const Order& o) { return o.attempt == attempt; });
  if (found != worker.waiting.end()) {
    const uint64_t slot = std::get<wire::RunSlot>(found->body).slot;
    worker.waiting.erase(found);
    After(id, kLatency, [this, id, attempt, slot] {
      Tell(id, {attempt, wire::Withdrawn{slot}});
    });
  } else if (worker.running.has_value() &&
             worker.running->order.attempt == attempt) {
    worker.running->withdrawn = true;
    GoOnLater(id, kLatency);
  }
}

void SimWorkers::Tell(WorkerId id, const wire::Message& message) {
  listener_->OnMessage(id, message);
  At(id).replies.Deliver(id, message);
}

void SimWorkers::Answer(WorkerId id, wire::Body answer) {
  Worker& worker = At(id);
  const Order order = std::move(worker.running->order);
  const absl::Duration computed = absl::Nanoseconds(worker.running->compute_ns);
  worker.running.reset();
  if (!std::holds_alternative<wire::Withdrawn>(answer)) {
    options_.done(order, computed);
  }
  Tell(id, {order.attempt, std::move(answer)});
  GoOnLater(id, absl::ZeroDuration());
}

// --- what takes time ---

bool SimWorkers::Reached(const wire::WordRef& ref) const {
  return ref.value == 0 ||
         wire::Reached(arena_.arena().WordAt(ref.offset), ref.value);
}

bool SimWorkers::AllReached(const std::vector<wire::SlotUnit>& units) const {
  return std::all_of(units.begin(), units.end(), [this](const auto& unit) {
    return Reached(unit.version);
  });
}

bool SimWorkers::MayRun(const wire::RunSlot& slot, size_t micro_batch) const {
  const wire::SlotMicroBatch& next = slot.micro_batches[micro_batch];
  return Reached(next.input_ready) && Reached(next.gradient_ready);
}

bool SimWorkers::MayBegin(const Order& order, bool oldest) const {
  if (const auto* const slot = std::get_if<wire::RunSlot>(&order.body)) {
    if (!AllReached(slot->units)) return false;
    const size_t needs = oldest ? 1 : slot->micro_batches.size();
    for (size_t i = 0; i < needs; ++i) {
      if (!MayRun(*slot, i)) return false;
    }
    return true;
  }
  if (const auto* const sample = std::get_if<wire::RunSample>(&order.body)) {
    return AllReached(sample->units);
  }
  const auto* const op = std::get_if<wire::HostOp>(&order.body);
  return op == nullptr || op->kind != HostOpKind::kGather ||
         Reached(op->version);
}

void SimWorkers::Raise(const wire::WordRef& ref) {
  if (ref.value == 0 || Reached(ref)) return;
  wire::Raise(arena_.arena().WordAt(ref.offset), ref.value,
              arena_.arena().doorbells());
}

absl::Duration SimWorkers::MicroBatchTime(const wire::RunSlot& slot) const {
  constexpr double kOfJob[] = {0.25, 0.5, 1, 2, 4};
  const double layers = slot.last_layer - slot.first_layer + 1.0;
  const double pass = slot.kind == SlotKind::kForward    ? 1
                      : slot.kind == SlotKind::kEvaluate ? 1
                                                         : 3;
  if (options_.layer_time_of != nullptr) {
    return layers * pass * options_.layer_time_of(slot.job);
  }
  const double of_job = options_.lengths == SimWorkersOptions::Lengths::kEqual
                            ? 1
                            : kOfJob[slot.job % 5];
  return layers * pass * of_job * options_.layer_time;
}

absl::Duration SimWorkers::CommandTime(const wire::Body& command) {
  if (std::holds_alternative<wire::HostOp>(command)) {
    return Draw(absl::Microseconds(100), absl::Milliseconds(10));
  }
  return Draw(absl::Milliseconds(5), absl::Seconds(2));
}

void SimWorkers::GoOnLater(WorkerId id, absl::Duration delay) {
  After(id, delay, [this, id] { GoOn(id); });
}

void SimWorkers::LookAgain(WorkerId id) {
  if (std::exchange(At(id).looks, true)) return;
  After(id, options_.look_again, [this, id] {
    At(id).looks = false;
    GoOn(id);
  });
}

void SimWorkers::AllGoOn() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    GoOnLater(static_cast<WorkerId>(i), absl::ZeroDuration());
  }
}

bool SimWorkers::Begin(WorkerId id) {
  Worker& worker = At(id);
  const auto turn = [](const Order& order) {
    const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
    return slot != nullptr ? slot->turn : 0;
  };
  auto next = worker.waiting.end();
  std::set<uint64_t> jobs;  // of slots that came before
  for (auto it = worker.waiting.begin(); it != worker.waiting.end(); ++it) {
    const bool oldest = it == worker.waiting.begin();
    // Only devices have one overtake another, of another job.
    if (worker.info.role != WorkerRole::kDevice && !oldest) break;
    const auto* const slot = std::get_if<wire::RunSlot>(&it->body);
    if (slot != nullptr && !jobs.insert(slot->job).second) continue;
    if (!MayBegin(*it, oldest)) continue;
    if (next == worker.waiting.end() || turn(*it) < turn(*next)) next = it;
  }
  if (next == worker.waiting.end()) return false;
  worker.running = Running{.order = std::move(*next),
                           .begun_ns = loop_.clock().MonotonicNs()};
  worker.waiting.erase(next);
  options_.begins(worker.running->order);
  return true;
}

void SimWorkers::GoOn(WorkerId id) {
  Worker& worker = At(id);
  if (worker.running.has_value() && worker.running->busy) return;
  if (!worker.running.has_value() && !Begin(id)) {
    if (!worker.waiting.empty()) LookAgain(id);
    return;
  }
  Running& running = *worker.running;
  if (const auto* const slot =
          std::get_if<wire::RunSlot>(&running.order.body)) {
    return GoOnWithSlot(id, *slot);
  }
  running.busy = true;
  const auto* const op = std::get_if<wire::HostOp>(&running.order.body);
  if (op != nullptr) Raise(op->begun);
  After(id, CommandTime(running.order.body), [this, id] { EndCommand(id); });
}

void SimWorkers::GoOnWithSlot(WorkerId id, const wire::RunSlot& slot) {
  Worker& worker = At(id);
  Running& running = *worker.running;
  if (running.withdrawn) return Answer(id, wire::Withdrawn{slot.slot});
  if (!MayRun(slot, running.micro_batch)) return LookAgain(id);
  if (running.micro_batch == 0) {
    Tell(id, {running.order.attempt,
              wire::SlotStarted{.slot = slot.slot,
                                .received_ns = running.begun_ns,
                                .time_ns = running.begun_ns}});
    // Whoever heard of it may have killed this worker.
    if (!worker.running.has_value()) return;
  }
  const absl::Duration time = MicroBatchTime(slot);
  running.busy = true;
  running.compute_ns += absl::ToInt64Nanoseconds(time);
  After(id, time, [this, id] { OnMicroBatch(id); });
}

void SimWorkers::OnMicroBatch(WorkerId id) {
  Running& running = *At(id).running;
  const auto& slot = std::get<wire::RunSlot>(running.order.body);
  running.busy = false;
  const size_t at = running.micro_batch++;
  for (const wire::SlotOutput& output : slot.outputs) {
    if (output.micro_batch == at) Raise(output.raise);
  }
  AllGoOn();
  const bool last = running.micro_batch == slot.micro_batches.size();
  if (last) return EndSlot(id, slot);
  Tell(id, {running.order.attempt,
            wire::MicroBatchDone{.slot = slot.slot,
                                 .index = slot.micro_batches[at].index,
                                 .time_ns = loop_.clock().MonotonicNs()}});
}

void SimWorkers::EndSlot(WorkerId id, const wire::RunSlot& slot) {
  const Running& running = *At(id).running;
  wire::SlotDone done;
  done.slot = slot.slot;
  done.started_ns = running.begun_ns;
  done.ended_ns = loop_.clock().MonotonicNs();
  done.compute_ns = running.compute_ns;
  done.wait_ns = done.ended_ns - done.started_ns - done.compute_ns;
  const auto count = static_cast<uint32_t>(slot.micro_batches.size());
  const int64_t mean =
      running.compute_ns / count / (slot.last_layer - slot.first_layer + 1);
  const bool backward =
      slot.kind == SlotKind::kFused || slot.kind == SlotKind::kBackward;
  for (uint32_t layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
    done.layers.push_back(
        {layer, count, mean / 3, backward ? mean * 2 / 3 : 0});
  }
  if (slot.kind == SlotKind::kFused || slot.kind == SlotKind::kEvaluate) {
    done.results.resize(count, {1.0, 1, wire::Finite::kYes, 0});
  }
  Answer(id, std::move(done));
}

void SimWorkers::EndCommand(WorkerId id) {
  const Running& running = *At(id).running;
  const wire::Body& body = running.order.body;
  if (const auto* const op = std::get_if<wire::HostOp>(&body)) {
    if (op->kind == HostOpKind::kGather) {
      for (const auto& micro_batch : op->micro_batches) Raise(micro_batch.word);
    }
    if (op->kind == HostOpKind::kUpdate) Raise(op->version);
    AllGoOn();
    return Answer(id,
                  wire::HostOpDone{.operation = op->operation,
                                   .norm_squared = 1,
                                   .started_ns = running.begun_ns,
                                   .ended_ns = loop_.clock().MonotonicNs()});
  }
  if (const auto* const sample = std::get_if<wire::RunSample>(&body)) {
    wire::SampleDone done = fakes::DoneSample(arena_.arena(), *sample);
    done.started_ns = running.begun_ns;
    done.ended_ns = loop_.clock().MonotonicNs();
    return Answer(id, std::move(done));
  }
  const auto* const file = std::get_if<wire::FileOp>(&body);
  ROUNDHOUSE_CHECK(file != nullptr) << "a command that no worker has here";
  const bool save = file->kind == wire::FileOpKind::kSave;
  const bool good =
      !(save && options_.disk_full()) && fakes::Save(arena_.arena(), *file);
  constexpr uint32_t kResourceExhausted = 8;
  Answer(id, good ? wire::Body(wire::FileOpDone{file->operation, 1})
                  : wire::Failed{file->operation, kResourceExhausted,
                                 "no space left on device"});
}

}  // namespace roundhouse::sim
