#include "server/dataset/preparer.h"

#include <string>
#include <utility>
#include <vector>

#include "base/files/open_limit.h"
#include "base/log.h"
#include "server/dataset/helper_limits.h"

namespace roundhouse {
namespace {

// Why there is no child, as Preparer's `done` has it.
absl::Status Lasting(const absl::Status& status) {
  const std::string text(status.message());
  // What was checked is not what is there now.
  if (absl::IsFailedPrecondition(status)) {
    return absl::InvalidArgumentError(text);
  }
  return IsOpenHang(status) ? absl::DataLossError(text) : status;
}

}  // namespace

Preparer::Preparer(EventLoop& loop, const PreparerOptions& options,
                   std::function<void(absl::Status)> done)
    : loop_(loop), options_(options), done_(std::move(done)) {}

std::unique_ptr<Preparer> Preparer::Start(
    EventLoop& loop, const PreparerOptions& options,
    std::function<void(absl::Status)> done) {
  auto preparer =
      std::unique_ptr<Preparer>(new Preparer(loop, options, std::move(done)));
  preparer->StartSplit(Split::kTrain);
  return preparer;
}

Preparer::~Preparer() { loop_.CancelTimer(next_); }

void Preparer::StartSplit(Split split) {
  const bool validation = split == Split::kValidation;
  const std::string train = options_.output_directory + "/train";
  const std::string out =
      validation ? options_.output_directory + "/validation" : train;
  ReadingOptions reading = options_.reading;
  if (validation && !options_.validation_files.empty()) {
    reading.data_files = options_.validation_files;
  }
  std::vector<std::string> mode = {"--out", out, "--split",
                                   validation ? "validation" : "train"};
  if (!options_.cache_directory.empty()) {
    mode.insert(mode.end(), {"--cache", options_.cache_directory});
  }
  if (validation) mode.insert(mode.end(), {"--bigram-from", train});
  reading.given = options_.given;
  helper_ = DatasetHelper::Start(
      loop_, options_.program, reading, mode, [](const std::string&) {},
      [this, split](const absl::Status& status) {
        if (helper_->started()) return OnEnded(split, status);
        OnNotStarted(split, status);
      });
  helper_->TellProgress([this, validation](double share) {
    options_.progress(validation, share);
  });
}

void Preparer::OnNotStarted(Split split, const absl::Status& status) {
  if (!absl::IsUnavailable(status) || IsOpenHang(status)) {
    next_ = loop_.After(absl::ZeroDuration(),
                        [this, why = Lasting(status)] { Finish(why); });
    return;
  }
  if (!std::exchange(told_of_shortage_, true)) {
    RH_LOG(kWarning) << "the dataset helper waits: " << status.message();
  }
  next_ = loop_.After(kHelperRetryDelay, [this, split] { StartSplit(split); });
}

void Preparer::OnEnded(Split split, const absl::Status& status) {
  if (status.ok() && split == Split::kTrain && HasValidation(options_)) {
    // Not from within the old child's own callback.
    next_ = loop_.After(absl::ZeroDuration(),
                        [this] { StartSplit(Split::kValidation); });
    return;
  }
  if (helper_->killed_by_others() && ++deaths_ < kMaxHelperDeaths) {
    RH_LOG(kWarning) << status.message() << "; it is started again";
    next_ =
        loop_.After(kHelperRetryDelay, [this, split] { StartSplit(split); });
    return;
  }
  Finish(status);
}

void Preparer::Finish(absl::Status status) {
  const auto done = std::move(done_);
  done(std::move(status));  // may destroy this object
}

}  // namespace roundhouse
