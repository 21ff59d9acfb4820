#include "server/workers/files_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace roundhouse {

FilesLine::~FilesLine() { pool_.Forget(this); }

FilesLine::Ticket FilesLine::Run(Operation operation, Done done,
                                 int most_deaths) {
  const auto ticket = static_cast<Ticket>(++last_ticket_);
  std::visit([this](auto& op) { op.operation = last_ticket_; }, operation);
  line_.push_back({.ticket = ticket,
                   .operation = std::move(operation),
                   .done = std::move(done),
                   .most_deaths = most_deaths});
  SendNext();
  return ticket;
}

void FilesLine::SendNext() {
  if (sent_ || line_.empty() || !pool_.up(pool_.FilesWorker())) return;
  sent_ = true;
  std::visit(
      [this](const auto& op) { pool_.Send(pool_.FilesWorker(), op, this); },
      line_.front().operation);
}

void FilesLine::OnWorkerUp() { SendNext(); }

void FilesLine::EndFirst(const absl::Status& status) {
  const Entry first = std::move(line_.front());
  line_.pop_front();
  sent_ = false;
  // The next one does not wait for what is done with this one's end.
  SendNext();
  if (first.done != nullptr) first.done(status);
}

void FilesLine::OnReply(WorkerId, const wire::Message& reply) {
  if (const auto* failed = std::get_if<wire::Failed>(&reply.body)) {
    const auto code = static_cast<absl::StatusCode>(failed->code);
    EndFirst(code == absl::StatusCode::kOk ? absl::InternalError(failed->text)
                                           : absl::Status(code, failed->text));
  } else if (std::holds_alternative<wire::FileOpDone>(reply.body)) {
    EndFirst(absl::OkStatus());
  }
}

void FilesLine::OnLost(WorkerId, uint64_t, const std::string& why) {
  sent_ = false;
  Entry& first = line_.front();
  if (first.abandoned) {
    EndFirst(absl::CancelledError("it was abandoned"));
  } else if (++first.deaths == first.most_deaths) {
    EndFirst(absl::InternalError(absl::StrCat(
        "the files worker died ", first.deaths,
        first.deaths == 1 ? " time" : " times", " over it: ", why)));
  } else {
    std::rotate(line_.begin(), line_.begin() + 1, line_.end());
  }
}

void FilesLine::Abandon(Ticket ticket) {
  const auto entry = std::find_if(
      line_.begin(), line_.end(),
      [=](const Entry& waiting) { return waiting.ticket == ticket; });
  if (entry == line_.end()) return;
  entry->abandoned = true;
  if (sent_ && entry == line_.begin()) return;
  const Done done = std::move(entry->done);
  line_.erase(entry);
  if (done != nullptr) done(absl::CancelledError("it was abandoned"));
}

void FilesLine::Forget(Ticket ticket) {
  for (Entry& entry : line_) {
    if (entry.ticket == ticket) entry.done = nullptr;
  }
  Abandon(ticket);
}

}  // namespace roundhouse
