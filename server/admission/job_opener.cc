#include "server/admission/job_opener.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/admission/source_files.h"
#include "server/planning/job_needs.h"
#include "server/run/finish_mark.h"
#include "server/weights/base_weights.h"
#include "server/weights/tokenizer_copy.h"

namespace roundhouse {
namespace {

// Whether weights, adapter and configuration are what was submitted.
absl::Status CheckSources(const JobRecord& job, const std::string& directory,
                          const AdmittedJob& admitted) {
  ASSIGN_OR_RETURN(const SourceFiles then, SourceFilesFromJson(job.files));
  const ModelDirectory& model = admitted.model;
  SourceFiles now = model.files;
  if (HasTokenizerCopy(directory)) {
    // The job's own are used.
    std::erase_if(now, [&](const CheckedFile& file) {
      return std::find(model.tokenizer.begin(), model.tokenizer.end(), file) !=
             model.tokenizer.end();
    });
  }
  if (admitted.adapter.has_value()) {
    const auto& files = admitted.adapter->files;
    now.insert(now.end(), files.begin(), files.end());
  }
  return CheckUnchanged(then, now);
}

// Beside the loop.
void OpenRest(const JobOpener::World& world, OpenedJob& opened) {
  const JobRecord& job = opened.job;
  const std::string data = world.paths.Data(job);
  opened.finish_step = ReadFinishMark(world.paths.FinishMark(job));
  opened.admitted = world.admitted.GetAsIs(job);
  if (!opened.admitted.ok()) return;
  const AdmittedJob& admitted = **opened.admitted;
  opened.sources = CheckSources(job, world.paths.Directory(job), admitted);
  const ModelDirectory& model = admitted.model;
  opened.base =
      world.hub.NameOf(model.path).value_or(HubName{.id = model.path});
  const TrainedModel trained = TrainedOf(admitted.spec, model.config);
  if (trained.adapter.present()) {
    opened.base_key = BaseKey(model, trained.dtype);
  }
  if (!job.dataset.has_value()) {
    opened.counted = CountDatasets(admitted, world.roots, data);
  }
  opened.datasets = OpenDatasets(admitted, data);
}

}  // namespace

struct JobOpener::Opening {
  Opening(EventLoop& loop, const std::string& id)
      : id(id), finding(loop), background(loop) {}

  const std::string id;
  bool begun = false;
  bool finding_begun = false;
  std::optional<absl::StatusOr<AdmittedJobs::Job>> found;
  std::unique_ptr<PreparedDataCheck> check;
  bool mended = false;  // the data were damaged and are whole now
  std::shared_ptr<OpenedJob> opened;
  bool done = false;
  // Nothing follows once this is gone.
  std::shared_ptr<bool> here = std::make_shared<bool>(true);
  Background finding;
  Background background;
};

JobOpener::JobOpener(const World& world, Calls calls)
    : world_(world), calls_(std::move(calls)) {}

JobOpener::~JobOpener() = default;

void JobOpener::Begin(const std::string& id) {
  if (opening_ != nullptr && opening_->id == id) return;
  opening_ = std::make_unique<Opening>(world_.loop, id);
}

std::optional<absl::StatusOr<AdmittedJobs::Job>> JobOpener::Find(
    const std::string& id) {
  if (const AdmittedJobs::Job kept = world_.admitted.Kept(id)) return kept;
  Begin(id);
  if (opening_->found.has_value()) return opening_->found;
  if (std::exchange(opening_->finding_begun, true)) return std::nullopt;
  const auto job = world_.store.Get(id);
  if (!job.ok()) return job.status();
  opening_->finding.Run<absl::StatusOr<AdmittedJobs::Job>>(
      [&admitted = world_.admitted, job = *job] { return admitted.Get(job); },
      [this](absl::StatusOr<AdmittedJobs::Job> found) {
        opening_->found = std::move(found);
        calls_.again();
      });
  return std::nullopt;
}

std::optional<OpenedJob> JobOpener::Take(const std::string& id) {
  Begin(id);
  if (opening_->done) {
    std::optional<OpenedJob> opened = std::move(*opening_->opened);
    opening_.reset();
    return opened;
  }
  if (std::exchange(opening_->begun, true)) return std::nullopt;
  opening_->opened = std::make_shared<OpenedJob>();
  const auto job = world_.store.Get(id);
  if (!job.ok()) {
    OpenedJob opened;
    opened.files = job.status();
    opening_.reset();
    return opened;
  }
  opening_->opened->job = *job;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  if (!spec.ok()) {  // whatever else is wrong with a job, it fails as it starts
    Open();
    return std::nullopt;
  }
  opening_->check = PreparedDataCheck::Start(
      world_.loop, world_.helpers.Data(*job, spec->spec()),
      {.damaged =
           [this, job = *job](const std::string& damage,
                              std::function<void()> go_on) {
             calls_.warn(job,
                         absl::StrCat("the prepared data were damaged: ",
                                      damage, "; they are prepared again"),
                         std::move(go_on));
           },
       .done =
           [this](const PreparedDataCheck::Result& result) {
             OnDataChecked(result);
           }});
  return std::nullopt;
}

void JobOpener::OnDataChecked(const PreparedDataCheck::Result& result) {
  OpenedJob& opened = *opening_->opened;
  opened.data = result.status;
  opening_->mended = result.status.ok() && !result.damage.empty();
  // Not from within the check's own callback.
  world_.loop.After(absl::ZeroDuration(),
                    [this, here = std::weak_ptr<bool>(opening_->here)] {
                      if (here.expired()) return;
                      opening_->check.reset();
                      Open();
                    });
}

void JobOpener::Open() {
  if (!opening_->opened->data.ok()) return OnOpened();
  world_.log.Open(
      world_.paths.Directory(opening_->opened->job),
      [this, here = std::weak_ptr<bool>(opening_->here)](JobLog::Opened files) {
        if (!here.expired()) OnFilesOpened(std::move(files));
      });
}

void JobOpener::OnFilesOpened(JobLog::Opened files) {
  const std::shared_ptr<OpenedJob> opened = opening_->opened;
  opened->files = std::move(files);
  if (!opened->files.ok()) return OnOpened();
  if (opening_->mended) {
    (*opened->files)
        ->Log(
            "the prepared data are whole: they were prepared "
            "again");
  }
  opening_->background.Run<absl::Status>(
      [world = world_, opened] {
        OpenRest(world, *opened);
        return absl::OkStatus();
      },
      [this, opened](const absl::Status& status) {
        if (!status.ok()) opened->files = status;  // too much waits
        OnOpened();
      });
}

void JobOpener::OnOpened() {
  opening_->done = true;
  calls_.again();
}

std::string JobOpener::opening() const {
  return opening_ != nullptr && opening_->begun ? opening_->id : "";
}

bool JobOpener::opened() const { return opening_->done; }

void JobOpener::Forget(const std::string& id) {
  if (opening_ != nullptr && opening_->id == id) opening_.reset();
}

void JobOpener::Stop() { opening_.reset(); }

}  // namespace roundhouse
