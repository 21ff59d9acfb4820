#include "server/sample/sample_run.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

uint64_t FileBytes(const wire::FileTensor& tensor) {
  return tensor.element_count * DTypeBytes(tensor.file_dtype);
}

absl::Status HostMemoryError(const std::string& text) {
  return FieldError(absl::StatusCode::kResourceExhausted,
                    FieldReason::kHostMemory, "model",
                    absl::StrCat(text, "; training jobs go first"));
}

}  // namespace

std::deque<FilePart> SplitParts(const std::vector<FilePart>& parts,
                                uint64_t bytes) {
  std::deque<FilePart> split;
  for (const FilePart& part : parts) {
    uint64_t taken = 0;
    for (const wire::FileTensor& tensor : part.tensors) {
      const uint64_t size = FileBytes(tensor);
      if (taken == 0 || taken + size > bytes) {
        FilePart& next = split.emplace_back(part);
        next.tensors.clear();
        taken = 0;
      }
      split.back().tensors.push_back(tensor);
      taken += size;
    }
  }
  return split;
}

SampleRun::SampleRun(const SampleGround& ground, SampleRunOptions options,
                     std::shared_ptr<SampleSink> sink,
                     std::function<void(absl::Status)> over)
    : arena_(ground.arena),
      pool_(ground.pool),
      bases_(ground.bases),
      options_(std::move(options)),
      sink_(std::move(sink)),
      over_(std::move(over)),
      prompts_(
          ground.loop, ground.arena, ground.pool, PromptOptions(),
          {.tokenized = [this] { OnTokenized(); },
           .configure = [this](WorkerId worker) { Configure(worker); },
           .piece =
               [this](SamplePiece piece) { sink_->OnPiece(std::move(piece)); },
           .computed = [this](int64_t ns) { options_.computed(ns); },
           .over = [this](absl::Status status) { OnPromptsOver(status); }}),
      background_(ground.loop) {}

SampleRun::~SampleRun() {
  arena_.pages().Forget(memory_wait_);
  if (file_work_.has_value()) options_.files_line->Forget(file_work_->ticket);
}

// --- the beginning ---

PromptRunOptions SampleRun::PromptOptions() const {
  const SampleQuestion& question = options_.question;
  const uint64_t devices = static_cast<uint64_t>(pool_.device_count());
  return {.text = {.program = options_.program,
                   .tokenizer_directory = options_.source.tokenizer_directory,
                   .model_directory = options_.source.model.path,
                   .raw = question.raw,
                   .template_date = options_.source.template_date,
                   .given = [files = options_.source.given] { return files; }},
          .prompts = question.prompts,
          .model = options_.source.model.config,
          .job = options_.number,
          .first_sample = options_.number,
          .max_new_tokens = question.max_new_tokens,
          .temperature = question.temperature,
          .seed = question.seed,
          .first_device =
              static_cast<int>(options_.number / kSampleNumbers % devices)};
}

void SampleRun::Start() { prompts_.Start(); }

absl::Status SampleRun::TakeMemory() {
  const SampleSource& source = options_.source;
  ASSIGN_OR_RETURN(
      std::shared_ptr<BaseWeights> base,
      bases_.Get(source.base_key, source.model.config, source.dtype));
  SamplingStateOptions state{.job = options_.number,
                             .model = source.model.config,
                             .dtype = source.dtype};
  if (source.adapter.has_value()) {
    state.adapter = source.adapter->config;
    state.adapter.dropout = 0;
  }
  ASSIGN_OR_RETURN(state_,
                   SamplingState::Create(arena_, state, std::move(base)));
  if (arena_.largest_gap_bytes() >= options_.reserved_bytes()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      "the host memory that is free is needed by the running job");
}

void SampleRun::OnTokenized() {
  if (ended_) return;
  const absl::Status status = TakeMemory();
  if (absl::IsResourceExhausted(status)) {
    return End(HostMemoryError(std::string(status.message())));
  }
  if (!status.ok()) return End(status);
  memory_wait_ = arena_.pages().WhenReady(
      [this](const absl::Status& ready) { OnMemory(ready); });
}

void SampleRun::OnMemory(const absl::Status& ready) {
  if (ended_) return;
  if (!ready.ok()) return End(HostMemoryError(std::string(ready.message())));
  base_ticket_ = state_->base().Join([this](BaseWeights::Grant grant) {
    grant == BaseWeights::Grant::kLoad ? LoadBase() : LoadAdapters();
  });
}

// --- loading ---

void SampleRun::LoadBase() {
  Load(state_->BaseParts(options_.source.model.sources),
       [this] { LookAtBase(); });
}

void SampleRun::LookAtBase() {
  const auto model = std::make_shared<ModelDirectory>(options_.source.model);
  background_.Run<absl::StatusOr<std::string>>(
      [model, dtype = options_.source.dtype] { return BaseKey(*model, dtype); },
      [this](const absl::StatusOr<std::string>& key) {
        if (!ended_) OnBaseLoaded(key);
      });
}

void SampleRun::OnBaseLoaded(const absl::StatusOr<std::string>& key) {
  // Files that changed meanwhile may have given old and new bytes.
  if (!key.ok() || *key != options_.source.base_key) {
    bases_.Forget(state_->base());
    return End(
        FieldError(absl::StatusCode::kFailedPrecondition,
                   FieldReason::kInvalidModel, "model",
                   absl::StrCat("the files of ", options_.source.model.path,
                                " changed while they were read")));
  }
  state_->base().LoadDone();
  LoadAdapters();
}

void SampleRun::LoadAdapters() {
  if (!options_.source.adapter.has_value()) {
    return prompts_.Draw(state_->units());
  }
  Load(state_->AdapterParts(options_.source.adapter->sources), [this] {
    state_->PublishAdapters();
    prompts_.Draw(state_->units());
  });
}

void SampleRun::Load(const std::vector<FilePart>& parts,
                     std::function<void()> loaded) {
  // Its turn at the base came late.
  if (ended_) return;
  to_load_ = SplitParts(parts, kSampleLoadBytes);
  loaded_ = std::move(loaded);
  LoadNext();
}

void SampleRun::LoadNext() {
  if (to_load_.empty()) return std::exchange(loaded_, nullptr)();
  auto table = FileTable::Create(arena_, wire::FileOpKind::kLoad,
                                 {std::move(to_load_.front())});
  to_load_.pop_front();
  if (!table.ok()) {
    return End(HostMemoryError(std::string(table.status().message())));
  }
  wire::FileOp op = (*table)->op();
  op.job = options_.number;
  file_work_ = FileWork{
      *std::move(table),
      options_.files_line->Run(
          op, [this](const absl::Status& status) { OnFileWork(status); })};
}

void SampleRun::OnFileWork(const absl::Status& status) {
  file_work_.reset();
  if (ended_) return ReleaseIfQuiet();
  if (status.ok()) return LoadNext();
  End(FieldError(absl::StatusCode::kFailedPrecondition,
                 FieldReason::kInvalidModel, "model", status.message()));
  ReleaseIfQuiet();
}

// --- the workers ---

void SampleRun::Configure(WorkerId worker) {
  if (!configured_.insert(worker).second) return;
  pool_.Send(worker,
             wire::ConfigureJob{options_.number, state_->layout_offset()});
}

void SampleRun::OnWorkerUp(WorkerId worker) { prompts_.OnWorkerUp(worker); }

void SampleRun::OnWorkerDown(WorkerId worker) { configured_.erase(worker); }

void SampleRun::OnDeviceLost() { prompts_.OnDeviceLost(); }

// --- the end ---

void SampleRun::End(absl::Status why) {
  ended_ = true;
  // A process that reads into the arena is waited for.
  if (file_work_.has_value()) options_.files_line->Abandon(file_work_->ticket);
  prompts_.End(std::move(why));
}

void SampleRun::OnPromptsOver(const absl::Status& status) {
  ended_ = true;
  prompts_over_ = status;
  if (file_work_.has_value()) options_.files_line->Abandon(file_work_->ticket);
  ReleaseIfQuiet();
}

void SampleRun::ReleaseIfQuiet() {
  if (!prompts_over_.has_value() || released_ || file_work_.has_value()) {
    return;
  }
  released_ = true;
  arena_.pages().Forget(memory_wait_);
  for (const WorkerId worker : configured_) {
    if (pool_.up(worker)) pool_.Send(worker, wire::ReleaseJob{options_.number});
  }
  if (state_ != nullptr) state_->base().Leave(base_ticket_);
  state_.reset();
  bases_.DropEmpty();
  over_(*prompts_over_);
}

}  // namespace roundhouse
