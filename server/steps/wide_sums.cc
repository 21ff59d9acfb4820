#include "server/steps/wide_sums.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/dtype.h"
#include "base/log.h"
#include "scheduler/plan/step_plan.h"
#include "server/steps/commands.h"

namespace roundhouse {
namespace {

wire::PeerVerb VerbOf(SumExchanges::Verb verb) {
  switch (verb) {
    case SumExchanges::Verb::kExchange:
      return wire::PeerVerb::kExchange;
    case SumExchanges::Verb::kDownload:
      return wire::PeerVerb::kDownload;
    case SumExchanges::Verb::kRelease:
      return wire::PeerVerb::kRelease;
  }
  return wire::PeerVerb::kRelease;
}

// Units as the wire numbers them.
std::set<int> UnitsOf(const wire::RunSlot& command) {
  std::set<int> units;
  for (const wire::SlotContribution& sum : command.contributions) {
    units.insert(static_cast<int>(sum.unit));
  }
  return units;
}

}  // namespace

SumSetId WideSums::SetOf(const OutSlot& slot, int unit) {
  return {slot.action.place.step_number, slot.action.place.round, unit};
}

bool WideSums::MayExchange(const Job& job, const RunSlotAction& action) const {
  if (!dispatch_.peers().enabled() || job.state.options().adapter.present()) {
    return false;
  }
  if (action.kind != SlotKind::kFused && action.kind != SlotKind::kBackward) {
    return false;
  }
  const auto step = job.steps.find(action.place.step_number);
  if (step == job.steps.end()) return false;  // given up
  const RoundData& round = step->second.data.rounds[action.place.round];
  if (action.micro_batches.size() ==
      static_cast<int64_t>(round.micro_batches.size())) {
    return false;  // the only part
  }
  const size_t sums = ContributedGroups(job.buffers.options().plan,
                                        action.layers.first, round.group_count)
                          .size();
  return sums * DTypeBytes(job.buffers.contributions().dtype()) >
         DTypeBytes(DType::kF32);
}

void WideSums::OnSend(const Job& job, const RunSlotAction& action, bool again,
                      wire::RunSlot& command) {
  if (!MayExchange(job, action)) return;
  const std::set<int> units = UnitsOf(command);
  bool holds =
      !again && action.units_down.empty() && dispatch_.peers().number() != 0;
  for (const int unit : units) {
    holds = holds && exchanges_.MayHold(
                         action.device,
                         {action.place.step_number, action.place.round, unit});
  }
  command.sums = holds ? wire::SumPlace::kDevice : wire::SumPlace::kHost;
  // A set that is broken may have others that hold theirs.
  for (const int unit : holds ? std::set<int>() : units) {
    exchanges_.NotHeld(action.slot,
                       {action.place.step_number, action.place.round, unit});
  }
  Flush(job);
}

void WideSums::OnSumsHeld(const Job& job, const OutSlot& slot,
                          const wire::SumsHeld& held) {
  const RunSlotAction& action = slot.action;
  const RoundData& round =
      job.steps.at(action.place.step_number).data.rounds[action.place.round];
  const int64_t groups = int64_t{round.groups[action.micro_batches.end - 1]} -
                         round.groups[action.micro_batches.begin] + 1;
  for (const uint32_t unit : held.units) {
    exchanges_.Held(action.slot, SetOf(slot, static_cast<int>(unit)), groups,
                    round.group_count, dispatch_.peers().number() != 0);
  }
  Flush(job);
}

void WideSums::OnSliceDown(const Job& job, const OutSlot& slot,
                           const wire::SliceDown& down) {
  exchanges_.Exchanged(slot.action.slot,
                       SetOf(slot, static_cast<int>(down.unit)), down.whole);
  Flush(job);
}

void WideSums::OnDown(const Job& job, const OutSlot& slot, int unit) {
  if (!MayExchange(job, slot.action)) return;
  exchanges_.NotHeld(slot.action.slot, SetOf(slot, unit));
  Flush(job);
}

void WideSums::OnDone(const Job& job, const OutSlot& slot) {
  if (!MayExchange(job, slot.action)) return;
  for (const int unit : ContributedUnitsOf(slot.action, job.state)) {
    exchanges_.NotHeld(slot.action.slot, SetOf(slot, unit));
  }
  Flush(job);
}

void WideSums::OnGone(const Job& job, SlotId slot) {
  exchanges_.Gone(slot);
  Flush(job);
}

void WideSums::OnPeersOver(const Job& job) {
  exchanges_.BreakAll();
  Flush(job);
}

void WideSums::Flush(const Job& job) {
  counts_.failed += exchanges_.TakeFailed();
  for (const SumExchanges::DoneSet& done : exchanges_.TakeDone()) {
    const auto step = job.steps.find(done.set.step_number);
    if (step == job.steps.end()) continue;
    step->second.data.rounds[done.set.round].sliced.insert(done.set.unit);
    dispatch_.peers().NoteExchange();
    ++counts_.exchanged;
    for (const SlotId slot : done.slots) {
      dispatch_.dispatcher().ContributionDown(
          slot, job.state.SummedUnit(done.set.unit));
    }
  }
  for (const SumExchanges::Order& order : exchanges_.TakeOrders()) {
    Send(job, order);
  }
}

void WideSums::Send(const Job& job, const SumExchanges::Order& order) {
  const auto found = job.out.find(order.slot);
  if (found == job.out.end()) return;
  const OutSlot& slot = found->second;
  PeerGroup& peers = dispatch_.peers();
  const WorkerId worker = pool_.DeviceWorker(slot.device);
  if (!pool_.up(worker)) return;  // what it held is gone, as will be told
  wire::PeerSums command;
  if (order.verb == SumExchanges::Verb::kExchange) {
    command =
        ExchangeCommand(slot.action, job.steps.at(order.set.step_number).data,
                        order.set.unit, job.state, job.buffers);
    std::vector<SlotId> parts = exchanges_.PartsOf(order.set);
    // Members are in the order of their groups, not in that of sending.
    const auto first = [&](SlotId part) {
      return job.out.at(part).action.micro_batches.begin;
    };
    std::sort(parts.begin(), parts.end(),
              [&](SlotId a, SlotId b) { return first(a) < first(b); });
    ROUNDHOUSE_CHECK(parts.size() == command.members.size())
        << parts.size() << " parts, " << command.members.size() << " members";
    for (size_t i = 0; i < parts.size(); ++i) {
      command.members[i].rank = peers.RankOf(job.out.at(parts[i]).device);
    }
    command.group = peers.number();
    peers.NoteSent();
  }
  command.target_attempt = slot.attempt;
  command.slot = Number(order.slot);
  command.unit = static_cast<uint32_t>(order.set.unit);
  command.verb = VerbOf(order.verb);
  pool_.Send(worker, std::move(command));
}

}  // namespace roundhouse
