#include "server/workers/work_watch.h"

#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

bool IsComputed(const wire::Body& command) {
  return std::holds_alternative<wire::RunSlot>(command) ||
         std::holds_alternative<wire::RunSample>(command);
}

// When the device had done something: all that a micro-batch queued, or more.
// None: the message says nothing of that.
std::optional<int64_t> WorkShownNs(int64_t now_ns, const wire::Body& body) {
  if (const auto* done = std::get_if<wire::MicroBatchDone>(&body)) {
    return done->time_ns;
  }
  if (const auto* part = std::get_if<wire::BackfillComputed>(&body)) {
    return part->ended_ns;
  }
  if (const auto* done = std::get_if<wire::SlotDone>(&body)) {
    return done->ended_ns;
  }
  if (std::holds_alternative<wire::SampleDone>(body)) return now_ns;
  return std::nullopt;
}

// Nothing more comes of a slot or a sample.
bool IsAnswer(const wire::Body& body) {
  return std::holds_alternative<wire::SlotDone>(body) ||
         std::holds_alternative<wire::SampleDone>(body) ||
         std::holds_alternative<wire::Withdrawn>(body) ||
         std::holds_alternative<wire::Failed>(body);
}

}  // namespace

void WorkWatch::NoteSent(uint64_t attempt, const wire::Body& command) {
  if (IsComputed(command)) computing_.insert(attempt);
}

void WorkWatch::NoteHeard(int64_t now_ns, const wire::Message& message) {
  if (IsAnswer(message.body)) computing_.erase(message.attempt);
  const std::optional<int64_t> shown_ns = WorkShownNs(now_ns, message.body);
  if (shown_ns.has_value() && *shown_ns > suspected_ns_) suspected_ns_ = 0;
}

void WorkWatch::Suspect(int64_t now_ns, const std::string& why) {
  if (suspected_ns_ != 0) return;
  suspected_ns_ = now_ns;
  why_ = why;
}

std::string WorkWatch::Stuck(int64_t now_ns, absl::Duration limit) {
  if (suspected_ns_ == 0) return "";
  if (computing_.empty()) suspected_ns_ = now_ns;
  if (now_ns - suspected_ns_ <= absl::ToInt64Nanoseconds(limit)) return "";
  return absl::StrCat(why_, ", and nothing came of its work for ",
                      absl::FormatDuration(limit));
}

}  // namespace roundhouse
