#include "server/weights/file_operation.h"

#include <utility>

#include "base/log.h"

namespace roundhouse {

void FileOperation::Run(std::unique_ptr<FileTable> table, Done done) {
  wire::FileOp op = table->op();
  op.job = options_.job;
  op.seed = options_.seed;
  const FilesLine::Ticket ticket =
      line_.Run(op, [this](const absl::Status& status) { OnDone(status); });
  pending_ = Pending{std::move(table), ticket, std::move(done)};
}

void FileOperation::OnDone(const absl::Status& status) {
  ROUNDHOUSE_CHECK(pending_.has_value());
  const FilesLine::Ticket ticket = pending_->ticket;
  const Done done = pending_->done;
  // What reads the table of one that was done is in `done`.
  if (!status.ok()) pending_.reset();
  done(status);
  if (pending_.has_value() && pending_->ticket == ticket) pending_.reset();
  after_each_();
}

void FileOperation::Forget() {
  if (pending_.has_value()) line_.Forget(pending_->ticket);
  pending_.reset();
}

}  // namespace roundhouse
