#include "server/sample/prompt_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "server/dataset/helper_limits.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// What the helper calls a prompt.
constexpr char kHelperPrompt[] = "prompts[";

absl::Status HostMemoryError(const std::string& text) {
  return FieldError(absl::StatusCode::kResourceExhausted,
                    FieldReason::kHostMemory, "model", text);
}

absl::Status WithoutDevices() {
  return FieldError(absl::StatusCode::kFailedPrecondition,
                    FieldReason::kNoHealthyDevice, "", "no device is left");
}

}  // namespace

PromptRun::PromptRun(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                     PromptRunOptions options, PromptRunCalls calls)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      options_(std::move(options)),
      calls_(std::move(calls)),
      next_sample_(options_.first_sample),
      device_(options_.first_device) {}

PromptRun::~PromptRun() {
  // A released one may live as long as the loop, and has nothing to forget.
  if (released_) return;
  pool_.Forget(this);
  loop_.CancelTimer(release_timer_);
}

// --- text ---

void PromptRun::Start() {
  auto helper = TextHelper::Start(
      loop_, options_.text, options_.prompts,
      [this](TokenizedPrompts prompts) { OnTokenized(std::move(prompts)); },
      [this](const absl::Status& status) { OnHelperEnded(status); });
  if (helper.ok()) {
    helper_ = *std::move(helper);
  } else {
    End(helper.status());
  }
}

// What the helper refuses is the prompts, or the tokenizer's files.
absl::Status PromptRun::HelperError(const absl::Status& status) const {
  if (status.ok()) return absl::InternalError("the text helper left early");
  if (!absl::IsInvalidArgument(status)) return status;
  const std::string text(status.message());
  if (!absl::StartsWith(text, kHelperPrompt)) {
    return FieldError(FieldReason::kInvalidModel, "model", text);
  }
  return RequestError(FieldReason::kInvalidValue, options_.field,
                      absl::StrCat(options_.field, "[",
                                   absl::StripPrefix(text, kHelperPrompt)));
}

void PromptRun::OnHelperEnded(const absl::Status& status) {
  const bool again = !ended_.has_value() && prompts_.prompts.empty() &&
                     helper_->killed_by_others() &&
                     ++helper_deaths_ < kMaxHelperDeaths;
  const bool started = helper_->started();
  helper_.reset();
  if (again) {
    RH_LOG(kWarning) << status.message() << "; it is started again";
    return Start();
  }
  End(started ? HelperError(status) : status);
  ReleaseIfQuiet();
}

absl::Status PromptRun::CheckPrompt(const std::string& name,
                                    const std::vector<int32_t>& tokens) const {
  const ModelConfig& model = options_.model;
  if (static_cast<int64_t>(tokens.size()) >= model.max_position_tokens) {
    return RequestError(
        FieldReason::kInvalidValue, options_.field,
        absl::StrCat(name, ": has ", tokens.size(),
                     " tokens; with its answer the model has room for ",
                     model.max_position_tokens, ": shorten it"));
  }
  for (const int32_t token : tokens) {
    if (token >= 0 && token < model.vocab_size) continue;
    return FieldError(
        FieldReason::kInvalidModel, "model",
        absl::StrCat(name, ": has token ", token,
                     " of the tokenizer, the model's vocabulary is ",
                     model.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status PromptRun::CheckPrompts(const TokenizedPrompts& prompts) const {
  for (size_t i = 0; i < prompts.prompts.size(); ++i) {
    RETURN_IF_ERROR(CheckPrompt(absl::StrCat(options_.field, "[", i, "]"),
                                prompts.prompts[i]));
  }
  return prompts.prompts.size() == options_.prompts.size()
             ? absl::OkStatus()
             : absl::InternalError("the text helper lost prompts");
}

void PromptRun::OnTokenized(TokenizedPrompts prompts) {
  if (ended_.has_value()) return;
  const absl::Status status = CheckPrompts(prompts);
  if (!status.ok()) return End(status);
  prompts_ = std::move(prompts);
  // One that the model can't draw ends nothing.
  std::erase_if(prompts_.end_tokens, [this](int32_t token) {
    return token >= options_.model.vocab_size;
  });
  calls_.tokenized();
}

// --- drawing ---

void PromptRun::Draw(std::vector<wire::SlotUnit> units) {
  units_ = std::move(units);
  BeginGroup();
}

void PromptRun::BeginGroup() {
  if (ended_.has_value()) return;
  const size_t end =
      std::min(next_prompt_ + group_size_, prompts_.prompts.size());
  std::vector<SamplePrompt> prompts;
  for (size_t i = next_prompt_; i < end; ++i) {
    prompts.push_back({static_cast<int>(i), prompts_.prompts[i]});
  }
  auto batch = SampleBatch::Create(
      arena_,
      {.job = options_.job,
       .sample = next_sample_++,
       .max_new_tokens = options_.max_new_tokens,
       .max_position_tokens = options_.model.max_position_tokens,
       .vocab_size = options_.model.vocab_size,
       .temperature = options_.temperature,
       .seed = options_.seed,
       .units = units_,
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
std::optional<DeviceId> PromptRun::UpDevice() const {
  const int count = pool_.device_count();
  for (int i = 0; i < count; ++i) {
    const DeviceId device = static_cast<DeviceId>((device_ + i) % count);
    if (pool_.up(pool_.DeviceWorker(device)) && !pool_.gone(device)) {
      return device;
    }
  }
  return std::nullopt;
}

void PromptRun::SendCommand() {
  const std::optional<DeviceId> device = UpDevice();
  // Comes again when one is up.
  wants_device_ = !device.has_value();
  if (wants_device_) return OnDeviceLost();
  device_ = Number(*device);
  const WorkerId worker = pool_.DeviceWorker(*device);
  calls_.configure(worker);
  pool_.Send(worker, batch_->Command(), this);
  out_ = true;
}

void PromptRun::OnSampleDone(const wire::SampleDone& done) {
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

void PromptRun::OnDecoded(std::vector<SamplePiece> pieces,
                          const std::vector<std::string>& texts) {
  if (ended_.has_value()) return;
  if (texts.size() != pieces.size()) {
    return End(absl::InternalError("the text helper lost texts"));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].text = texts[i];
    calls_.piece(std::move(pieces[i]));
  }
  GoOn();
}

void PromptRun::GoOn() {
  if (!batch_->done()) return SendCommand();
  next_prompt_ += batch_->size();
  batch_.reset();
  if (next_prompt_ == prompts_.prompts.size()) return End(absl::OkStatus());
  device_ = (device_ + 1) % pool_.device_count();
  BeginGroup();
}

// --- the workers ---

void PromptRun::OnWorkerUp(WorkerId worker) {
  const bool device = Number(worker) < pool_.device_count();
  if (device && wants_device_ && !ended_.has_value()) SendCommand();
}

void PromptRun::OnReply(WorkerId, const wire::Message& reply) {
  const auto* done = std::get_if<wire::SampleDone>(&reply.body);
  const auto* failed = std::get_if<wire::Failed>(&reply.body);
  if (done == nullptr && failed == nullptr) return;
  out_ = false;
  if (done != nullptr) calls_.computed(done->ended_ns - done->started_ns);
  if (ended_.has_value()) return ReleaseIfQuiet();
  done != nullptr ? OnSampleDone(*done) : OnFailed(*failed);
}

void PromptRun::OnFailed(const wire::Failed& failed) {
  const auto code = static_cast<absl::StatusCode>(failed.code);
  const std::string text = absl::StrCat("device ", device_, ": ", failed.text);
  if (code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kFailedPrecondition) {  // a logit is NaN
    return End(FieldError(absl::StatusCode::kFailedPrecondition,
                          FieldReason::kInvalidModel, "model", text));
  }
  if (code != absl::StatusCode::kResourceExhausted) {
    return End(absl::Status(code, text));
  }
  if (batch_->size() > 1 && batch_->fresh()) {
    group_size_ = batch_->size() / 2;
    return BeginGroup();
  }
  End(FieldError(code, FieldReason::kDeviceMemory, "", text));
}

void PromptRun::OnLost(WorkerId worker, uint64_t, const std::string&) {
  out_ = false;
  if (ended_.has_value()) return ReleaseIfQuiet();
  // One that was lent away is no death.
  const bool died = pool_.info(worker).taken_out.empty();
  if (died && ++deaths_ == kMaxSampleDeaths) {
    return End(absl::InternalError(absl::StrCat("the devices of a sample died ",
                                                kMaxSampleDeaths, " times")));
  }
  SendCommand();
}

void PromptRun::OnDeviceLost() {
  for (int i = 0; i < pool_.device_count(); ++i) {
    const WorkerId worker = pool_.DeviceWorker(static_cast<DeviceId>(i));
    if (!pool_.info(worker).lost) return;
  }
  End(WithoutDevices());
}

// --- the end ---

void PromptRun::End(absl::Status why) {
  if (ended_.has_value()) return;
  ended_ = std::move(why);
  if (helper_ != nullptr) {
    helper_->Kill(absl::CancelledError("the sample has ended"));
  }
  // Not from within a call of what is given back.
  release_timer_ =
      loop_.After(absl::ZeroDuration(), [this] { ReleaseIfQuiet(); });
}

void PromptRun::ReleaseIfQuiet() {
  if (!ended_.has_value() || released_ || helper_ != nullptr || out_) return;
  released_ = true;
  loop_.CancelTimer(release_timer_);
  batch_.reset();
  calls_.over(*ended_);
}

}  // namespace roundhouse
