#include "worker/peers/peer_exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/reduction.h"
#include "base/status.h"
#include "worker/board/arena_refs.h"
#include "worker/board/compute_clock.h"
#include "worker/board/lost_device.h"

namespace roundhouse::worker {

// Which results are on their way down; the copy queue says when they are.
class PeerExchange::Results {
 public:
  void Begin(size_t result) {
    MutexLock lock(mutex_);
    on_its_way_[result] = true;
  }
  // Notifies under the mutex: who waits may end the object then.
  void End(size_t result, bool down) {
    MutexLock lock(mutex_);
    on_its_way_[result] = false;
    lost_ |= !down;
    changed_.NotifyAll();
  }
  void Await(size_t result) {
    MutexLock lock(mutex_);
    while (on_its_way_[result]) changed_.Wait(mutex_);
  }
  bool lost() {  // one did not come down
    MutexLock lock(mutex_);
    return lost_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::array<bool, wire::PeerScratch::kResults> on_its_way_
      ABSL_GUARDED_BY(mutex_) = {};
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
};

// The thread's own.
struct PeerExchange::Run {
  const wire::PeerSums& command;
  TakenSums& taken;  // no slot: it takes part for the others only
  PeerGroup& group;
  wire::PeerScratch scratch;
  Results& results;
  // This member's sums; null elsewhere.
  std::vector<const std::byte*> own = {};

  const wire::PeerMember& self() const { return command.members[command.self]; }
};

absl::StatusOr<std::unique_ptr<PeerExchange>> PeerExchange::Create(
    Device& device, SlotBoard& board, HeldSums& held, CopyQueue& downloads,
    const wire::Arena& arena, Outbox& outbox) {
  if (device.peers() == nullptr) {
    return absl::FailedPreconditionError("the device reaches no other device");
  }
  std::unique_ptr<PeerExchange> exchange(
      new PeerExchange(device, board, held, downloads, arena, outbox));
  ASSIGN_OR_RETURN(exchange->stream_, device.NewStream());
  ASSIGN_OR_RETURN(exchange->scratch_, device.Allocate(wire::kPeerScratchBytes,
                                                       "exchanges of sums"));
  exchange->thread_ = std::thread([at = exchange.get()] { at->Work(); });
  return exchange;
}

PeerExchange::~PeerExchange() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    GiveUpGroup();
  }
  wake_.NotifyAll();
  thread_.join();
}

void PeerExchange::Join(const wire::JoinPeers& command) {
  MutexLock lock(mutex_);
  commands_.emplace_back(command);
  wake_.NotifyAll();
}

void PeerExchange::Exchange(wire::PeerSums command) {
  MutexLock lock(mutex_);
  commands_.emplace_back(std::move(command));
  wake_.NotifyAll();
}

void PeerExchange::Leave(const wire::LeavePeers& command) {
  MutexLock lock(mutex_);
  left_ = std::max(left_, command.group);
  // What comes next is of the group that is over: groups are joined one after
  // the other, and each is left before the next is.
  GiveUpGroup();
}

void PeerExchange::GiveUpGroup() {
  given_up_.store(true);
  if (group_ != nullptr) group_->Abort();
}

void PeerExchange::Work() {
  while (true) {
    std::variant<wire::JoinPeers, wire::PeerSums> command;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && commands_.empty()) wake_.Wait(mutex_);
      if (stopping_) break;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    if (const auto* join = std::get_if<wire::JoinPeers>(&command)) {
      DoJoin(*join);
    } else {
      DoExchange(std::get<wire::PeerSums>(command));
    }
  }
  MutexLock lock(mutex_);
  group_.reset();
}

void PeerExchange::LeaveGroup(const absl::Status& why) {
  EndProcessIfLost(why);
  std::shared_ptr<PeerGroup> group;
  {
    MutexLock lock(mutex_);
    group = std::move(group_);
    group_ = nullptr;
    if (stopping_) return;
  }
  if (group != nullptr) group->Abort();
  outbox_.Send(0, wire::PeersLeft{std::exchange(group_number_, 0),
                                  wire::FailedWith(0, why).text});
}

void PeerExchange::DoJoin(const wire::JoinPeers& command) {
  std::shared_ptr<PeerGroup> before;  // its end may take a while
  {
    MutexLock lock(mutex_);
    before = std::move(group_);
    group_ = nullptr;
    given_up_.store(stopping_ || command.group <= left_);
  }
  before.reset();
  group_number_ = command.group;
  const auto join = [&]() -> absl::StatusOr<std::unique_ptr<PeerGroup>> {
    PeerGroupId id = command.id;
    if (command.rank == 0) {
      ASSIGN_OR_RETURN(id, link_.NewGroupId());
      outbox_.Send(0, wire::PeersInvited{command.group, id});
    }
    return link_.Join(id, static_cast<int>(command.rank),
                      static_cast<int>(command.size), given_up_);
  };
  absl::StatusOr<std::unique_ptr<PeerGroup>> group = join();
  if (!group.ok()) return LeaveGroup(group.status());
  bool over = false;
  {
    MutexLock lock(mutex_);
    group_ = *std::move(group);
    over = command.group <= left_;  // since it was joined
  }
  if (over) return LeaveGroup(absl::UnavailableError("the group is over"));
  outbox_.Send(0, wire::PeersJoined{command.group});
}

absl::Status PeerExchange::Check(const wire::PeerSums& command) const {
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of slot ", command.slot, ", unit ", command.unit,
                     ": ", what...));
  };
  if (command.members.size() < 2 || command.self >= command.members.size()) {
    return bad("member ", command.self, " of ", command.members.size());
  }
  uint64_t next = 0;
  for (const wire::PeerMember& member : command.members) {
    if (member.first_element != next || member.elements > ~next) {
      return bad("a slice begins with element ", member.first_element,
                 " in place of ", next);
    }
    next += member.elements;
  }
  for (const wire::PeerSum& sum : command.sums) {
    if (sum.member >= command.members.size() || sum.group_count < 1) {
      return bad("a sum of ", sum.group_count, " groups of member ",
                 sum.member);
    }
  }
  const wire::PeerScratch scratch{
      command.sums.size(), DTypeBytes(command.dtype), command.chunk_elements};
  if (command.sums.empty() || command.chunk_elements < 1 ||
      command.chunk_elements > wire::kPeerScratchBytes ||
      scratch.bytes() > wire::kPeerScratchBytes) {
    return bad(command.sums.size(), " sums, ", command.chunk_elements,
               " elements at a time");
  }
  const uint64_t bytes = command.members[command.self].elements * sizeof(float);
  return CheckBuffer(arena_.size_bytes(), command.slice, bytes,
                     absl::StrCat("slice of unit ", command.unit));
}

void PeerExchange::DoExchange(const wire::PeerSums& command) {
  absl::Status status = Check(command);
  std::shared_ptr<PeerGroup> group;
  {
    MutexLock lock(mutex_);
    if (command.group == group_number_) group = group_;
  }
  TakenSums taken;
  Results results;
  bool whole = false;
  if (!status.ok()) {
    RH_LOG(kError) << status.ToString();
  } else if (group != nullptr) {
    taken = held_.TakeForExchange(command.target_attempt, command.unit);
    Run run{.command = command,
            .taken = taken,
            .group = *group,
            .scratch = {command.sums.size(), DTypeBytes(command.dtype),
                        command.chunk_elements},
            .results = results};
    status = MakeSlices(run);
    whole = status.ok() && taken.slot != nullptr && !results.lost();
    if (!status.ok()) LeaveGroup(status);
  }
  if (taken.slot != nullptr) held_.Return(std::move(taken), whole);
  KillPoint("slot.slice.made");
  outbox_.Send(command.target_attempt,
               wire::SliceDown{.slot = command.slot,
                               .group = command.group,
                               .unit = command.unit,
                               .whole = whole,
                               .time_ns = MonotonicNs()});
}

// Waits until they are complete.
absl::Status PeerExchange::FindOwn(Run& run) {
  const wire::PeerSums& command = run.command;
  const Slot& slot = *run.taken.slot;
  std::vector<HeldSum>& held = run.taken.sums;
  const wire::PeerMember& last = command.members.back();
  const uint64_t bytes =
      (last.first_element + last.elements) * run.scratch.element_bytes;
  size_t next = 0;
  for (size_t s = 0; s < command.sums.size(); ++s) {
    if (command.sums[s].member != command.self) continue;
    if (next == held.size() ||
        command.dtype != slot.command.contribution_dtype ||
        held[next].buffer->bytes() != bytes) {
      return absl::InternalError(absl::StrCat(
          "slot ", command.slot, " holds ", held.size(), " ",
          DTypeName(slot.command.contribution_dtype), " sums of unit ",
          command.unit, ", not those that an exchange of ", bytes, " bytes in ",
          DTypeName(command.dtype), " names"));
    }
    HeldSum& sum = held[next++];
    if (sum.complete != nullptr) {
      RETURN_IF_ERROR(sum.complete->Wait());
      sum.complete = nullptr;
    }
    run.own[s] = sum.buffer->data();
  }
  return absl::OkStatus();
}

absl::Status PeerExchange::MakeSlices(Run& run) {
  const wire::PeerSums& command = run.command;
  run.own.assign(command.sums.size(), nullptr);
  if (run.taken.slot != nullptr) RETURN_IF_ERROR(FindOwn(run));
  uint64_t longest = 0;
  for (const wire::PeerMember& member : command.members) {
    longest = std::max(longest, member.elements);
  }
  absl::Status status;
  size_t result = 0;
  for (uint64_t begin = 0; begin < longest && status.ok();
       begin += command.chunk_elements) {
    run.results.Await(result);
    status =
        MakeChunk(run, begin, scratch_->data() + run.scratch.result(result));
    const uint64_t elements = run.self().elements;
    if (status.ok() && begin < elements) {
      SendDown(run, begin, std::min(command.chunk_elements, elements - begin),
               result);
    }
    result = (result + 1) % wire::PeerScratch::kResults;
  }
  for (size_t i = 0; i < wire::PeerScratch::kResults; ++i) {
    run.results.Await(i);
  }
  if (status.ok()) return status;
  // Whatever is left of it on the stream ends first.
  const absl::Status finished = run.group.Finish(*stream_);
  const absl::Status drained = Drain(*stream_);
  return absl::IsAborted(finished)  ? finished
         : absl::IsAborted(drained) ? drained
                                    : status;
}

absl::Status PeerExchange::MakeChunk(Run& run, uint64_t begin,
                                     std::byte* result) {
  RETURN_IF_ERROR(CopyChunk(run, begin));
  const uint64_t all = run.self().elements;
  if (begin < all) {
    RETURN_IF_ERROR(FoldChunk(
        run, begin, std::min(run.command.chunk_elements, all - begin), result));
  }
  return run.group.Finish(*stream_);
}

// A sum of each member at a time: the group copies one from each to each.
absl::Status PeerExchange::CopyChunk(Run& run, uint64_t begin) {
  const wire::PeerSums& command = run.command;
  std::vector<std::vector<size_t>> sums(command.members.size());
  size_t most = 0;
  for (size_t s = 0; s < command.sums.size(); ++s) {
    std::vector<size_t>& of = sums[command.sums[s].member];
    of.push_back(s);
    most = std::max(most, of.size());
  }
  const auto bytes_of = [&](const wire::PeerMember& member) {
    return begin < member.elements
               ? std::min(command.chunk_elements, member.elements - begin) *
                     run.scratch.element_bytes
               : 0;
  };
  for (size_t i = 0; i < most; ++i) {
    std::vector<PeerCopy> copies;
    for (size_t m = 0; m < command.members.size(); ++m) {
      if (m == command.self) continue;
      const wire::PeerMember& member = command.members[m];
      PeerCopy copy;
      copy.rank = static_cast<int>(member.rank);
      if (i < sums[command.self].size()) {
        copy.send =
            OwnSum(run, sums[command.self][i], member.first_element + begin);
        copy.send_bytes = bytes_of(member);
      }
      if (i < sums[m].size()) {
        copy.receive = scratch_->data() + run.scratch.received(sums[m][i]);
        copy.receive_bytes = bytes_of(run.self());
      }
      if (copy.send_bytes + copy.receive_bytes > 0) copies.push_back(copy);
    }
    if (copies.empty()) continue;
    RETURN_IF_ERROR(run.group.Exchange(*stream_, copies));
  }
  return absl::OkStatus();
}

// From an element on.  Of a sum that is held no more: any bytes.
const std::byte* PeerExchange::OwnSum(const Run& run, size_t sum,
                                      uint64_t element) const {
  return run.own[sum] == nullptr
             ? scratch_->data()
             : run.own[sum] + element * run.scratch.element_bytes;
}

// Leaf by leaf, in the order of their groups, as TreeFold has it.
absl::Status PeerExchange::FoldChunk(Run& run, uint64_t begin,
                                     uint64_t elements, std::byte* result) {
  const wire::PeerSums& command = run.command;
  const auto value = [&](int i) {
    return reinterpret_cast<float*>(scratch_->data() +
                                    run.scratch.value(static_cast<size_t>(i)));
  };
  const auto count = static_cast<int64_t>(elements);
  std::vector<int> free;
  for (size_t i = 0; i < wire::PeerScratch::FoldValues(command.sums.size());
       ++i) {
    free.push_back(static_cast<int>(i));
  }
  TreeFold fold;
  const auto add = [&](const std::vector<TreeAdd>& additions) -> absl::Status {
    for (const TreeAdd& one : additions) {
      RETURN_IF_ERROR(
          stream_->AddFloats(value(one.into), value(one.from), count));
      free.push_back(one.from);
    }
    return absl::OkStatus();
  };
  for (size_t s = 0; s < command.sums.size(); ++s) {
    const std::byte* const from =
        command.sums[s].member == command.self
            ? OwnSum(run, s, run.self().first_element + begin)
            : scratch_->data() + run.scratch.received(s);
    const int leaf = free.back();
    free.pop_back();
    RETURN_IF_ERROR(
        command.dtype == DType::kF32
            ? stream_->CopyOnDevice(reinterpret_cast<std::byte*>(value(leaf)),
                                    from, elements * sizeof(float))
            : stream_->WidenFloats(value(leaf), from, count, command.dtype));
    RETURN_IF_ERROR(add(fold.Push(leaf, command.sums[s].group_count)));
  }
  RETURN_IF_ERROR(add(fold.Finish()));
  return stream_->CopyOnDevice(
      result, reinterpret_cast<const std::byte*>(value(fold.root())),
      elements * sizeof(float));
}

// What fails here the others need not know: they go on.
void PeerExchange::SendDown(Run& run, uint64_t begin, uint64_t elements,
                            size_t result) {
  if (run.taken.slot == nullptr) return;
  Slot& slot = *run.taken.slot;
  CopyRequest request;
  request.priority =
      slot.backfill() ? CopyPriority::kBackfill : CopyPriority::kBulk;
  request.purpose = wire::Purpose::kGradients;
  request.to = arena_.Bytes(run.command.slice) + begin * sizeof(float);
  request.from = scratch_->data() + run.scratch.result(result);
  request.bytes = elements * sizeof(float);
  request.stats = &slot.stats;
  request.place = {.layer = slot.command.units[run.taken.unit].layer};
  request.abandoned = &slot.abandoned;
  const auto done = [&board = board_, &results = run.results, &slot,
                     result](absl::Status status) {
    const bool down = status.ok();
    if (!down) board.FailUnlessAbandoned(slot, std::move(status));
    results.End(result, down);
  };
  request.done = done;
  run.results.Begin(result);
  absl::Status queued = downloads_.Enqueue(std::move(request));
  if (!queued.ok()) done(std::move(queued));
}

}  // namespace roundhouse::worker
