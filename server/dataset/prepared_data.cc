#include "server/dataset/prepared_data.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/open_limit.h"
#include "base/kill_point.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/dataset/dataset.h"
#include "server/dataset/prepared_split.h"

namespace roundhouse {
namespace {

constexpr int64_t kAnyToken = int64_t{1} << 32;

absl::Status VerifySplit(const std::string& path,
                         const std::atomic<bool>* stop) {
  RETURN_IF_ERROR(VerifyPreparedSplit(path, stop));
  // A manifest of version 1 has no seal: what it says must go with the files.
  const auto opened = Dataset::Open(path, kAnyToken);
  if (!absl::IsInvalidArgument(opened.status())) return opened.status();
  return absl::DataLossError(std::string(opened.status().message()));
}

absl::Status VerifySplits(const PreparerOptions& options,
                          const std::atomic<bool>* stop) {
  RETURN_IF_ERROR(VerifySplit(options.output_directory + "/train", stop));
  if (!HasValidation(options)) return absl::OkStatus();
  return VerifySplit(options.output_directory + "/validation", stop);
}

// "": all sources are there.  UNAVAILABLE: who has one does not answer.
absl::StatusOr<std::string> MissingSource(const PreparerOptions& options) {
  for (const auto* files :
       {&options.reading.data_files, &options.validation_files}) {
    for (const std::string& file : *files) {
      const auto there = std::make_shared<bool>(false);
      if (!CallWithinLimit(file,
                           [file, there] { *there = PathExists(file); })) {
        return absl::UnavailableError(
            absl::StrCat(file, ": ", OpenErrorText(errno)));
      }
      if (!*there) return file;
    }
  }
  return "";
}

}  // namespace

PreparedDataCheck::PreparedDataCheck(EventLoop& loop,
                                     const PreparerOptions& options,
                                     Calls calls)
    : loop_(loop),
      options_(options),
      calls_(std::move(calls)),
      background_(loop, Background::Thread::kOwn) {}

std::unique_ptr<PreparedDataCheck> PreparedDataCheck::Start(
    EventLoop& loop, const PreparerOptions& options, Calls calls) {
  auto check = std::unique_ptr<PreparedDataCheck>(
      new PreparedDataCheck(loop, options, std::move(calls)));
  check->Verify();
  return check;
}

PreparedDataCheck::~PreparedDataCheck() { stop_ = true; }

void PreparedDataCheck::Verify() {
  background_.Run([this] { return VerifySplits(options_, &stop_); },
                  [this](const absl::Status& found) { OnVerified(found); });
}

void PreparedDataCheck::OnVerified(const absl::Status& found) {
  unread_ = absl::IsInternal(found);
  if (!absl::IsDataLoss(found) && !unread_) {
    Finish(found);
    return;
  }
  damage_ = std::string(found.message());
  const std::weak_ptr<bool> alive = alive_;
  calls_.damaged(damage_, [this, alive] {
    if (!alive.expired()) LookForSources();
  });
}

void PreparedDataCheck::LookForSources() {
  background_.Run<absl::StatusOr<std::string>>(
      [this] { return MissingSource(options_); },
      [this](const absl::StatusOr<std::string>& missing) {
        OnSources(missing);
      });
}

void PreparedDataCheck::OnSources(const absl::StatusOr<std::string>& missing) {
  if (!missing.ok()) {
    Finish(absl::DataLossError(
        absl::StrCat("the prepared data are damaged (", damage_, "), and ",
                     std::string(missing.status().message()))));
  } else if (!missing->empty()) {
    Finish(WithoutData(absl::StrCat(
        "the prepared data are damaged (", damage_, "), and ", *missing,
        ", from which they could be prepared again, is gone")));
  } else {
    PrepareAgain();
  }
}

void PreparedDataCheck::PrepareAgain() {
  KillPoint("daemon.data.before_mending");
  preparer_ =
      Preparer::Start(loop_, options_, [this](const absl::Status& status) {
        // Not from within the preparer's own callback.
        const std::weak_ptr<bool> alive = alive_;
        loop_.After(absl::ZeroDuration(), [this, alive, status] {
          if (!alive.expired()) OnPrepared(status);
        });
      });
}

void PreparedDataCheck::OnPrepared(const absl::Status& status) {
  KillPoint("daemon.data.after_mending");
  if (!absl::IsInvalidArgument(status)) {
    Finish(status);
    return;
  }
  Finish(WithoutData(absl::StrCat(
      "the prepared data are damaged (", damage_,
      ") and can't be prepared again: ", std::string(status.message()))));
}

// What the disk does not give may be whole, and be there another time.
absl::Status PreparedDataCheck::WithoutData(const std::string& why) const {
  return unread_ ? absl::DataLossError(why) : absl::InvalidArgumentError(why);
}

void PreparedDataCheck::Finish(absl::Status status) {
  const auto done = calls_.done;  // outlives this object
  done({std::move(status), damage_});
}

}  // namespace roundhouse
