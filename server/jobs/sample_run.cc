#include "server/jobs/sample_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/jobs/spec_error.h"

namespace roundhouse {
namespace {

uint64_t FileBytes(const wire::FileTensor& tensor) {
  return tensor.element_count *
         DTypeBytes(static_cast<DType>(tensor.file_dtype));
}

absl::Status HostMemoryError(const std::string& text) {
  return FieldError(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                    "model",
                    absl::StrCat("model: ", text, "; training jobs go first"));
}

absl::Status WithoutDevices() {
  return FieldError(absl::StatusCode::kFailedPrecondition, "NO_HEALTHY_DEVICE",
                    "", "no device is left");
}

// Of the helper: the prompts, or the tokenizer's files.
absl::Status HelperError(const absl::Status& status) {
  if (status.ok()) return absl::InternalError("the text helper left early");
  if (!absl::IsInvalidArgument(status)) return status;
  const std::string text(status.message());
  if (absl::StartsWith(text, "prompts[")) {
    return FieldError("INVALID_VALUE", "prompts", text);
  }
  return FieldError("INVALID_MODEL", "model", absl::StrCat("model: ", text));
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
        split.push_back({part.path, part.prefix, part.file_bytes, {}});
        taken = 0;
      }
      split.back().tensors.push_back(tensor);
      taken += size;
    }
  }
  return split;
}

SampleRun::SampleRun(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                     BaseCache& bases, SampleRunOptions options,
                     std::shared_ptr<SampleSink> sink,
                     std::function<void(absl::Status)> over)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      bases_(bases),
      options_(std::move(options)),
      sink_(std::move(sink)),
      over_(std::move(over)),
      next_sample_(options_.number) {
  device_ = static_cast<int>(options_.number / kSampleNumbers %
                             static_cast<uint64_t>(pool.device_count()));
}

SampleRun::~SampleRun() {
  // A released one may live as long as the loop.
  if (!released_) loop_.CancelTimer(release_timer_);
}

// --- the beginning ---

void SampleRun::Start() {
  auto helper = TextHelper::Start(
      loop_,
      {.program = options_.program,
       .tokenizer_directory = options_.source.tokenizer_directory,
       .model_directory = options_.source.model.path,
       .raw = options_.question.raw,
       .template_date = options_.source.template_date},
      options_.question.prompts,
      [this](TokenizedPrompts prompts) { OnTokenized(std::move(prompts)); },
      [this](const absl::Status& status) { OnHelperEnded(status); });
  if (helper.ok()) {
    helper_ = *std::move(helper);
  } else {
    End(helper.status());
  }
}

void SampleRun::OnHelperEnded(const absl::Status& status) {
  helper_.reset();
  End(HelperError(status));
  ReleaseIfQuiet();
}

absl::Status SampleRun::CheckPrompts(const TokenizedPrompts& prompts) const {
  const ModelConfig& model = options_.source.model.config;
  for (size_t i = 0; i < prompts.prompts.size(); ++i) {
    const std::vector<int32_t>& tokens = prompts.prompts[i];
    const std::string name = absl::StrCat("prompts[", i, "]");
    if (static_cast<int64_t>(tokens.size()) >= model.max_position_tokens) {
      return FieldError(
          "INVALID_VALUE", "prompts",
          absl::StrCat(name, ": has ", tokens.size(),
                       " tokens; the model takes ", model.max_position_tokens,
                       " with the answer's"));
    }
    for (const int32_t token : tokens) {
      if (token >= 0 && token < model.vocab_size) continue;
      return FieldError("INVALID_MODEL", "model",
                        absl::StrCat("model: ", name, ": has token ", token,
                                     " of the tokenizer, the model's "
                                     "vocabulary is ",
                                     model.vocab_size));
    }
  }
  return prompts.prompts.size() == options_.question.prompts.size()
             ? absl::OkStatus()
             : absl::InternalError("the text helper lost prompts");
}

absl::Status SampleRun::TakeMemory() {
  const SampleSource& source = options_.source;
  ASSIGN_OR_RETURN(base_key_, BaseKey(source.model, source.dtype));
  ASSIGN_OR_RETURN(std::shared_ptr<BaseWeights> base,
                   bases_.Get(base_key_, source.model.config, source.dtype));
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

void SampleRun::OnTokenized(TokenizedPrompts prompts) {
  if (ended_.has_value()) return;
  absl::Status status = CheckPrompts(prompts);
  if (!status.ok()) return End(status);
  prompts_ = std::move(prompts);
  // One that the model can't draw ends nothing.
  const int64_t vocab_size = options_.source.model.config.vocab_size;
  std::erase_if(prompts_.end_tokens,
                [=](int32_t token) { return token >= vocab_size; });
  status = TakeMemory();
  if (absl::IsResourceExhausted(status)) {
    return End(HostMemoryError(std::string(status.message())));
  }
  if (!status.ok()) return End(status);
  base_ticket_ = state_->base().Join([this](BaseWeights::Turn turn) {
    turn == BaseWeights::Turn::kLoad ? LoadBase() : LoadAdapters();
  });
}

// --- loading ---

void SampleRun::LoadBase() {
  Load(state_->BaseParts(options_.source.model.sources),
       [this] { OnBaseLoaded(); });
}

void SampleRun::OnBaseLoaded() {
  const auto key = BaseKey(options_.source.model, options_.source.dtype);
  // Files that changed meanwhile may have given a mixture.
  if (!key.ok() || *key != base_key_) {
    bases_.Forget(state_->base());
    return End(FieldError(
        absl::StatusCode::kFailedPrecondition, "INVALID_MODEL", "model",
        absl::StrCat("model: the files of ", options_.source.model.path,
                     " changed while they were read")));
  }
  state_->base().LoadEnded(true);
  LoadAdapters();
}

void SampleRun::LoadAdapters() {
  if (!options_.source.adapter.has_value()) return BeginGroup();
  Load(state_->AdapterParts(options_.source.adapter->sources), [this] {
    state_->PublishAdapters();
    BeginGroup();
  });
}

void SampleRun::Load(const std::vector<FilePart>& parts,
                     std::function<void()> loaded) {
  // Its turn at the base came late.
  if (ended_.has_value()) return;
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
  op.operation = ++last_file_op_;
  file_work_ = FileWork{*std::move(table), op};
  SendFileOp();
}

void SampleRun::SendFileOp() {
  // When the worker is down, its coming up sends it.
  if (pool_.up(pool_.FilesWorker())) {
    pool_.Send(pool_.FilesWorker(), file_work_->op);
  }
}

void SampleRun::OnFileOpDone(const wire::FileOpDone& done) {
  if (!file_work_.has_value() || done.operation != file_work_->op.operation) {
    return;
  }
  file_work_.reset();
  if (ended_.has_value()) return ReleaseIfQuiet();
  LoadNext();
}

// --- drawing ---

void SampleRun::BeginGroup() {
  if (ended_.has_value()) return;
  const SampleSource& source = options_.source;
  const size_t end =
      std::min(next_prompt_ + group_size_, prompts_.prompts.size());
  std::vector<SamplePrompt> prompts;
  for (size_t i = next_prompt_; i < end; ++i) {
    prompts.push_back({static_cast<int>(i), prompts_.prompts[i]});
  }
  auto batch = SampleBatch::Create(
      arena_,
      {.job = options_.number,
       .sample = next_sample_++,
       .max_new_tokens = options_.question.max_new_tokens,
       .max_position_tokens = source.model.config.max_position_tokens,
       .vocab_size = source.model.config.vocab_size,
       .temperature = options_.question.temperature,
       .seed = options_.question.seed,
       .units = state_->units(),
       .end_tokens = prompts_.end_tokens},
      prompts);
  if (!batch.ok()) {
    return End(HostMemoryError(std::string(batch.status().message())));
  }
  batch_ = *std::move(batch);
  deaths_ = 0;
  SendCommand();
}

// The group's device as long as it lives: it keeps what it computed of earlier
// tokens.
std::optional<DeviceId> SampleRun::UpDevice() const {
  const int count = pool_.device_count();
  for (int i = 0; i < count; ++i) {
    const DeviceId device = static_cast<DeviceId>((device_ + i) % count);
    if (pool_.up(pool_.DeviceWorker(device))) return device;
  }
  return std::nullopt;
}

void SampleRun::Configure(WorkerId worker) {
  if (!configured_.insert(worker).second) return;
  pool_.Send(worker,
             wire::ConfigureJob{options_.number, state_->layout_offset()});
}

void SampleRun::SendCommand() {
  const std::optional<DeviceId> device = UpDevice();
  // Comes again when one is up.
  wants_device_ = !device.has_value();
  if (wants_device_) return OnDeviceLost();
  device_ = Number(*device);
  const WorkerId worker = pool_.DeviceWorker(*device);
  Configure(worker);
  out_ = OutCommand{worker, pool_.Send(worker, batch_->Command())};
}

bool SampleRun::IsOut(WorkerId worker, uint64_t attempt) const {
  return out_.has_value() && out_->worker == worker && out_->attempt == attempt;
}

void SampleRun::OnSampleDone(const wire::SampleDone& done) {
  out_.reset();
  if (ended_.has_value()) return ReleaseIfQuiet();
  auto pieces = batch_->Accept(done);
  if (!pieces.ok()) return End(pieces.status());
  deaths_ = 0;
  std::vector<DrawnTokens> drawn;
  for (const SamplePiece& piece : *pieces) {
    drawn.push_back(
        {piece.prompt, piece.tokens, piece.end != SampleEnd::kNone});
  }
  helper_->Decode(drawn, [this, pieces = *std::move(pieces)](
                             const std::vector<std::string>& texts) {
    OnDecoded(pieces, texts);
  });
}

void SampleRun::OnDecoded(std::vector<SamplePiece> pieces,
                          const std::vector<std::string>& texts) {
  if (ended_.has_value()) return;
  if (texts.size() != pieces.size()) {
    return End(absl::InternalError("the text helper lost texts"));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].text = texts[i];
    sink_->OnPiece(std::move(pieces[i]));
  }
  GoOn();
}

void SampleRun::GoOn() {
  if (!batch_->done()) return SendCommand();
  next_prompt_ += batch_->size();
  batch_.reset();
  if (next_prompt_ == prompts_.prompts.size()) return End(absl::OkStatus());
  device_ = (device_ + 1) % pool_.device_count();
  BeginGroup();
}

// --- the workers ---

void SampleRun::OnWorkerUp(WorkerId worker) {
  if (worker == pool_.FilesWorker()) {
    if (file_work_.has_value()) SendFileOp();
  } else if (worker != pool_.HostWorker() && wants_device_ &&
             !ended_.has_value()) {
    SendCommand();
  }
}

void SampleRun::OnMessage(WorkerId worker, const wire::Message& message) {
  const wire::Body& body = message.body;
  if (const auto* file = std::get_if<wire::FileOpDone>(&body)) {
    OnFileOpDone(*file);
  } else if (const auto* failed = std::get_if<wire::Failed>(&body)) {
    OnFailed(worker, message.attempt, *failed);
  } else if (const auto* done = std::get_if<wire::SampleDone>(&body)) {
    if (IsOut(worker, message.attempt)) OnSampleDone(*done);
  }
}

void SampleRun::OnFailed(WorkerId worker, uint64_t attempt,
                         const wire::Failed& failed) {
  if (IsOut(worker, attempt)) return OnSampleFailed(failed);
  if (worker != pool_.FilesWorker() || !file_work_.has_value() ||
      failed.id != file_work_->op.operation) {
    return;
  }
  file_work_.reset();
  End(FieldError(absl::StatusCode::kFailedPrecondition, "INVALID_MODEL",
                 "model", absl::StrCat("model: ", failed.text)));
}

void SampleRun::OnSampleFailed(const wire::Failed& failed) {
  const auto code = static_cast<absl::StatusCode>(failed.code);
  const std::string text = absl::StrCat("device ", device_, ": ", failed.text);
  out_.reset();
  if (ended_.has_value()) return ReleaseIfQuiet();
  if (code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kFailedPrecondition) {  // a logit is NaN
    return End(FieldError(absl::StatusCode::kFailedPrecondition,
                          "INVALID_MODEL", "model",
                          absl::StrCat("model: ", text)));
  }
  if (code != absl::StatusCode::kResourceExhausted) {
    return End(absl::Status(code, text));
  }
  if (batch_->size() > 1 && batch_->fresh()) {
    group_size_ = batch_->size() / 2;
    return BeginGroup();
  }
  End(FieldError(code, "DEVICE_MEMORY", "", text));
}

void SampleRun::OnWorkerDown(WorkerId worker) {
  configured_.erase(worker);
  if (worker == pool_.FilesWorker()) {
    // Nobody reads into the arena any more.
    if (ended_.has_value()) file_work_.reset();
    return ReleaseIfQuiet();
  }
  if (!out_.has_value() || out_->worker != worker) return;
  out_.reset();
  if (ended_.has_value()) return ReleaseIfQuiet();
  if (++deaths_ == kMaxSampleDeaths) {
    return End(absl::InternalError(absl::StrCat("the devices of a sample died ",
                                                kMaxSampleDeaths, " times")));
  }
  SendCommand();
}

void SampleRun::OnDeviceLost() {
  for (int i = 0; i < pool_.device_count(); ++i) {
    const WorkerId worker = pool_.DeviceWorker(static_cast<DeviceId>(i));
    if (!pool_.info(worker).lost) return;
  }
  End(WithoutDevices());
}

// --- the end ---

void SampleRun::End(absl::Status why) {
  if (ended_.has_value()) return;
  ended_ = std::move(why);
  if (helper_ != nullptr) {
    helper_->Kill(absl::CancelledError("the sample has ended"));
  }
  // Not from within a call of what is given back.
  release_timer_ =
      loop_.After(absl::ZeroDuration(), [this] { ReleaseIfQuiet(); });
}

void SampleRun::ReleaseIfQuiet() {
  if (!ended_.has_value() || released_ || helper_ != nullptr ||
      file_work_.has_value() || out_.has_value()) {
    return;
  }
  released_ = true;
  loop_.CancelTimer(release_timer_);
  for (const WorkerId worker : configured_) {
    if (pool_.up(worker)) pool_.Send(worker, wire::ReleaseJob{options_.number});
  }
  batch_.reset();
  if (state_ != nullptr) state_->base().Leave(base_ticket_);
  state_.reset();
  bases_.DropEmpty();
  over_(*ended_);
}

}  // namespace roundhouse
