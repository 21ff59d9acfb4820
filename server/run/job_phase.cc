#include "server/run/job_phase.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {

const JobOutcome* JobPhase::Outcome() const {
  if (const auto* load = std::get_if<StoppingLoad>(&state_)) {
    return &load->outcome;
  }
  if (const auto* stopping = std::get_if<Stopping>(&state_)) {
    return &stopping->outcome;
  }
  if (const auto* finished = std::get_if<Finished>(&state_)) {
    return &finished->outcome;
  }
  return nullptr;
}

const JobOutcome& JobPhase::outcome() const {
  ROUNDHOUSE_CHECK(ending());
  return *Outcome();
}

JobOutcome& JobPhase::MutableOutcome() {
  return const_cast<JobOutcome&>(outcome());
}

bool JobPhase::pausing() const {
  return ending() && outcome().state == JobState::kPaused &&
         outcome().reason == JobReason::kNone;
}

void JobPhase::StartSteps() {
  ROUNDHOUSE_CHECK(Is<Loading>());
  state_ = Stepping{};
}

void JobPhase::StartFinal() {
  ROUNDHOUSE_CHECK(Is<Stepping>());
  state_ = Finalizing{};
}

void JobPhase::Stop(JobOutcome outcome) {
  ROUNDHOUSE_CHECK(!finished());
  if (ending()) {
    if (MutableOutcome().state == JobState::kPaused) {
      MutableOutcome() = std::move(outcome);
    }
  } else if (loading()) {
    state_ = StoppingLoad{std::move(outcome)};
  } else {
    state_ = Stopping{std::move(outcome)};
  }
}

void JobPhase::Abandon() {
  ROUNDHOUSE_CHECK(letting_end());
  std::get<Stopping>(state_).rest = Rest::kAbandoned;
}

void JobPhase::BeQuiet() {
  ROUNDHOUSE_CHECK(stopping());
  std::get<Stopping>(state_).rest = Rest::kQuiet;
}

void JobPhase::SetOutcome(JobOutcome outcome) {
  MutableOutcome() = std::move(outcome);
}

void JobPhase::AddToMessage(const std::string& text) {
  absl::StrAppend(&MutableOutcome().message, text);
}

void JobPhase::Finish() {
  ROUNDHOUSE_CHECK(!finished());
  state_ = Finished{outcome()};
}

}  // namespace roundhouse
