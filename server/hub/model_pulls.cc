#include "server/hub/model_pulls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files/setting_file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "server/hub/curl_source.h"
#include "server/hub/model_pull.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status TryLater(absl::string_view why) {
  return FieldError(absl::StatusCode::kResourceExhausted,
                    FieldReason::kTryLater, "", why);
}

absl::Status TooMany(absl::string_view what) {
  return TryLater(absl::StrCat(what, "; try again when it has ended"));
}

absl::Status NoHub() {
  return FieldError(
      absl::StatusCode::kFailedPrecondition, FieldReason::kNotAvailable, "",
      "this server fetches nothing: it has no hub; an admin sets one with "
      "--hub=https://HOST, or as a line \"hub: https://HOST\" of "
      "/etc/roundhouse/daemon.conf, and restarts the daemon (docs/admin.md)");
}

// Whoever lost his connection asks for the same again.
bool SameWish(const PullWish& a, const PullWish& b) {
  return a.owner == b.owner && a.project == b.project && a.name == b.name &&
         a.model.id == b.model.id && a.model.revision == b.model.revision;
}

// What is no fault of ours has a reason with it.
absl::Status WithReason(const absl::Status& status) {
  if (ErrorReason(status) != FieldReason::kNone) return status;
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return RequestError(status.code(), FieldReason::kNotAvailable, "",
                          status.message());
    case absl::StatusCode::kNotFound:
      return RequestError(status.code(), FieldReason::kNotFound, "",
                          status.message());
    case absl::StatusCode::kDeadlineExceeded:
      return RequestError(status.code(), FieldReason::kTryLater, "",
                          status.message());
    default:
      return status;
  }
}

}  // namespace

std::string NameOfHubModel(const HubName& model) {
  return absl::StrReplaceAll(model.id, {{"/", "--"}});
}

ModelPulls::ModelPulls(ModelPullsOptions options, Uploads* uploads)
    : options_(std::move(options)), uploads_(uploads) {}

ModelPulls::~ModelPulls() { Stop(); }

void ModelPulls::Stop() {
  std::list<Pull> last;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    last.swap(pulls_);
  }
  for (Pull& pull : last) pull.task->Cancel();
  for (Pull& pull : last) pull.thread.join();
}

void ModelPulls::Reap() {
  for (auto pull = pulls_.begin(); pull != pulls_.end();) {
    if (pull->task->result().has_value()) {
      pull->thread.join();
      pull = pulls_.erase(pull);
    } else {
      ++pull;
    }
  }
}

absl::Status ModelPulls::CheckRoom(const PullWish& wish) const {
  if (stopped_) return absl::UnavailableError("the server stops");
  size_t running = 0, ending = 0;  // the latter: the caller's
  for (const Pull& pull : pulls_) {
    ending += pull.task->cancelled() && pull.wish.owner == wish.owner;
    if (pull.task->cancelled() || SameWish(pull.wish, wish)) continue;
    ++running;
    if (pull.wish.owner == wish.owner) {
      return TooMany(absl::StrCat("a model is being pulled for ", wish.owner,
                                  " already (", pull.wish.model.id, ")"));
    }
  }
  if (ending >= kMaxEndingPullsOfOwner) {
    return TryLater(
        "an earlier pull of yours is still ending; try again in a moment");
  }
  if (running < kMaxPulls && pulls_.size() < kMaxPulls + kMaxEndingPulls) {
    return absl::OkStatus();
  }
  return TooMany(absl::StrCat(kMaxPulls,
                              " models are being pulled, as many as "
                              "may be at a time"));
}

absl::StatusOr<std::unique_ptr<WebSource>> ModelPulls::MakeSource(
    const std::shared_ptr<PullTask>& task) const {
  std::string token;
  if (!options_.token_file.empty()) {
    absl::StatusOr<std::string> read =
        ReadSecretFile(kHubTokenFlag, options_.token_file);
    if (!read.ok()) {
      RH_LOG(kError) << read.status().message();
      return FieldError(absl::StatusCode::kFailedPrecondition,
                        FieldReason::kNotAvailable, "",
                        "the server's token for the hub can't be read; its log "
                        "tells an admin why");
    }
    token = *std::move(read);
  }
  auto stopped = [task] { return task->cancelled(); };
  if (options_.make_source) {
    return options_.make_source(token, std::move(stopped));
  }
  return CurlSource::Create(*options_.hub, {.token = std::move(token),
                                            .stopped = std::move(stopped)});
}

absl::StatusOr<std::shared_ptr<PullTask>> ModelPulls::Begin(PullWish wish) {
  if (!options_.hub.has_value()) return NoHub();
  if (wish.name.empty()) wish.name = NameOfHubModel(wish.model);
  if (const absl::Status named = CheckUploadName(wish.name); !named.ok()) {
    return FieldError(FieldReason::kInvalidValue, "name", named.message());
  }
  auto task = std::make_shared<PullTask>();
  ASSIGN_OR_RETURN(auto source, MakeSource(task));
  MutexLock lock(mutex_);
  Reap();
  RETURN_IF_ERROR(CheckRoom(wish));
  for (Pull& pull : pulls_) {
    if (SameWish(pull.wish, wish)) pull.task->TakeOver();
  }
  Pull& pull = pulls_.emplace_back(
      Pull{std::move(wish), task, std::move(source), std::thread()});
  pull.thread = std::thread([this, &pull] { Run(&pull); });
  return task;
}

void ModelPulls::Run(Pull* pull) {
  const PullWish& wish = pull->wish;
  absl::StatusOr<PulledModel> result =
      ModelPull(wish, *options_.hub, pull->source.get(), options_.patience,
                uploads_, pull->task.get())
          .Run();
  pull->source.reset();  // and its connections
  if (absl::IsCancelled(result.status()) && pull->task->taken_over()) {
    result = absl::FailedPreconditionError(
        "the same pull was begun again, and goes on there");
  }
  if (!result.ok()) result = WithReason(result.status());
  RH_LOG(kInfo) << "pull of " << wish.model.id << " for " << wish.owner << ": "
                << (result.ok() ? result->record.reference()
                                : std::string(result.status().message()));
  pull->task->Finish(std::move(result));
}

}  // namespace roundhouse
