#include "server/api/watch_stream.h"

#include <utility>

#include "base/status.h"
#include "server/access/job_names.h"

namespace roundhouse {
namespace {

std::vector<JobState> LiveStates() {
  std::vector<JobState> live;
  for (JobState s : AllJobStates()) {
    if (!IsFinal(s)) live.push_back(s);
  }
  return live;
}

}  // namespace

WatchStream::WatchStream(StreamPump* pump, grpc::CallbackServerContext* context,
                         const JobStore* store, WatchQuery query,
                         Entered entered)
    : PumpedWriter(pump, context),
      pump_(pump),
      store_(store),
      query_(std::move(query)),
      entered_(std::move(entered)) {}

v1::FineTuningJob WatchStream::Shown(const JobRecord& job) const {
  v1::FineTuningJob out = ToProto(job);
  if (!entered_.SeesAllOf(job)) return Outline(std::move(out));
  out.clear_submitted_text();
  out.clear_resolved_spec();
  return out;
}

absl::StatusOr<NextMessage> WatchStream::Next(absl::Time now, Message* out) {
  if (!begun_) RETURN_IF_ERROR(Begin(now));
  if (queue_.empty() && !over()) RETURN_IF_ERROR(Refill());
  if (!queue_.empty()) {
    *out = std::move(queue_.front());
    queue_.pop_front();
    return NextMessage::kSend;
  }
  if (over()) return NextMessage::kEnd;
  ASSIGN_OR_RETURN(const bool progress, NextProgress(now, out));
  if (progress) return NextMessage::kSend;
  if (now < next_bookmark_) return NextMessage::kNothing;
  next_bookmark_ = now + kBookmarkInterval;
  out->set_kind(Message::BOOKMARK);
  out->set_revision(revision_);
  return NextMessage::kSend;
}

absl::Status WatchStream::Begin(absl::Time now) {
  begun_ = true;
  next_bookmark_ = now + kBookmarkInterval;
  if (query_.from_revision == 0) return QueueSnapshot();
  ASSIGN_OR_RETURN(const int64_t latest, store_->Revision());
  if (query_.from_revision > latest) {
    return absl::OutOfRangeError("from_revision is in the future");
  }
  revision_ = query_.from_revision;
  return absl::OkStatus();
}

// What is now; its messages carry no revision, the bookmark after them does.
absl::Status WatchStream::QueueSnapshot() {
  ASSIGN_OR_RETURN(revision_, store_->Revision());
  if (!id().empty()) {
    ASSIGN_OR_RETURN(const JobRecord job, store_->Get(id()));
    Queue(job, Message::CHANGE, 0);
    QueueBookmark();
    return absl::OkStatus();
  }
  std::optional<int64_t> before;
  do {
    ASSIGN_OR_RETURN(const JobPage page,
                     store_->List(LiveStates(), before, kMaxPageSize));
    for (const JobRecord& job : page.jobs) Queue(job, Message::CHANGE, 0);
    before = page.next_before;
  } while (before.has_value() && queue_.size() < 10 * kMaxPageSize);
  if (before.has_value()) {
    return absl::ResourceExhaustedError(
        "too many jobs have not ended; list them, then watch from the list's "
        "revision");
  }
  QueueBookmark();
  return absl::OkStatus();
}

// Many streams wait while nothing happens, so they don't ask the store then.
absl::Status WatchStream::Refill() {
  const uint64_t now_changed = pump_->changes();
  if (now_changed == seen_changes_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto changes,
                   store_->ChangesAfter(revision_, id(), kWatchBatch));
  for (const JobChange& change : changes) {
    const bool removed = change.event.type == "removed";
    Queue(change.job, removed ? Message::REMOVED : Message::CHANGE,
          change.event.revision);
    if (removed && !id().empty()) removed_ = true;
    revision_ = change.event.revision;
  }
  // A whole batch may have more behind it.
  if (changes.size() < kWatchBatch) seen_changes_ = now_changed;
  return absl::OkStatus();
}

void WatchStream::Queue(const JobRecord& job, Message::Kind kind,
                        int64_t revision) {
  Message message;
  message.set_kind(kind);
  message.set_revision(revision);
  *message.mutable_job() = Shown(job);
  queue_.push_back(std::move(message));
  if (!id().empty() && IsFinal(job.state)) final_seen_ = true;
}

void WatchStream::QueueBookmark() {
  Message bookmark;
  bookmark.set_kind(Message::BOOKMARK);
  bookmark.set_revision(revision_);
  queue_.push_back(std::move(bookmark));
}

absl::StatusOr<bool> WatchStream::NextProgress(absl::Time now, Message* out) {
  if (now < next_progress_) return false;
  for (const auto& [live, version] : store_->LiveJobs()) {
    if (!id().empty() && live != id()) continue;
    uint64_t& sent = sent_progress_[live];
    if (sent == version) continue;
    sent = version;
    ASSIGN_OR_RETURN(const JobRecord job, store_->Get(live));
    if (IsFinal(job.state)) continue;
    out->set_kind(Message::PROGRESS);
    out->set_revision(revision_);
    *out->mutable_job() = Shown(job);
    return true;
  }
  next_progress_ = now + kProgressInterval;
  return false;
}

}  // namespace roundhouse
