#include "server/api/sample_stream.h"

#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/calls/begin_stream.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status Invalid(const std::string& field, const std::string& text) {
  return FieldError(FieldReason::kInvalidValue, field, text);
}

absl::Status CheckPrompts(const v1::SampleRequest& request) {
  const auto count = static_cast<size_t>(request.prompts_size());
  if (count < 1 || count > kMaxSamplePrompts) {
    return Invalid("prompts", absl::StrCat(count, " prompts; from 1 to ",
                                           kMaxSamplePrompts));
  }
  size_t bytes = 0;
  for (const std::string& prompt : request.prompts()) bytes += prompt.size();
  if (bytes <= kMaxSamplePromptBytes) return absl::OkStatus();
  return Invalid("prompts", absl::StrCat(bytes, " bytes together; at most ",
                                         kMaxSamplePromptBytes));
}

absl::Status CheckNumbers(const v1::SampleRequest& request) {
  if (request.max_new_tokens() < 0 ||
      request.max_new_tokens() > kMaxNewTokens) {
    return Invalid("max_new_tokens",
                   absl::StrCat(request.max_new_tokens(), " tokens; from 1 to ",
                                kMaxNewTokens));
  }
  const double temperature = request.temperature();
  if (temperature >= 0 && temperature <= kMaxTemperature) {
    return absl::OkStatus();
  }
  return Invalid("temperature",
                 absl::StrCat(temperature, "; from 0 to ", kMaxTemperature));
}

v1::SampleEnd ToProto(SampleEnd end) {
  switch (end) {
    case SampleEnd::kNone:
      return v1::SAMPLE_END_UNSPECIFIED;
    case SampleEnd::kEndToken:
      return v1::END_TOKEN;
    case SampleEnd::kMaxNewTokens:
      return v1::MAX_NEW_TOKENS;
    case SampleEnd::kContextFull:
      return v1::CONTEXT_FULL;
  }
  return v1::SAMPLE_END_UNSPECIFIED;
}

// What has come and is not sent yet: at most the request's new tokens.  Shared
// by the stream and whoever samples.  Thread-safe.
class Mailbox final : public SampleSink {
 public:
  explicit Mailbox(StreamPump* pump) : pump_(pump) {}

  void OnSource(const std::string& path) override {
    v1::SampleResponse message;
    message.set_source(path);
    Add(std::move(message));
  }
  void OnPiece(SamplePiece piece) override {
    v1::SampleResponse message;
    message.set_prompt(piece.prompt);
    message.set_text(std::move(piece.text));
    message.mutable_tokens()->Add(piece.tokens.begin(), piece.tokens.end());
    message.set_end(ToProto(piece.end));
    Add(std::move(message));
  }
  void OnEnd(absl::Status status) override {
    MutexLock lock(mutex_);
    if (cancelled_) return;
    end_ = std::move(status);
    pump_->Wake();
  }
  bool cancelled() const override {
    MutexLock lock(mutex_);
    return cancelled_;
  }

  // The stream is gone; the pump is not called any more.
  void Close() {
    MutexLock lock(mutex_);
    cancelled_ = true;
  }
  absl::StatusOr<NextMessage> Take(v1::SampleResponse* out) {
    MutexLock lock(mutex_);
    if (!messages_.empty()) {
      *out = std::move(messages_.front());
      messages_.pop_front();
      return NextMessage::kSend;
    }
    if (!end_.has_value()) return NextMessage::kNothing;
    RETURN_IF_ERROR(*end_);
    return NextMessage::kEnd;
  }

 private:
  void Add(v1::SampleResponse message) {
    MutexLock lock(mutex_);
    if (cancelled_) return;
    messages_.push_back(std::move(message));
    pump_->Wake();
  }

  StreamPump* const pump_;
  mutable Mutex mutex_;
  std::deque<v1::SampleResponse> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class SampleStream final : public PumpedWriter<v1::SampleResponse> {
 public:
  SampleStream(StreamPump* pump, grpc::CallbackServerContext* context,
               SampleEngine* engine, std::shared_ptr<Mailbox> mailbox)
      : PumpedWriter(pump, context),
        engine_(engine),
        mailbox_(std::move(mailbox)) {}
  ~SampleStream() override {
    mailbox_->Close();
    engine_->Cancel(mailbox_.get());
  }

 protected:
  absl::StatusOr<NextMessage> Next(absl::Time,
                                   v1::SampleResponse* out) override {
    return mailbox_->Take(out);
  }

 private:
  SampleEngine* const engine_;
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

absl::StatusOr<SampleQuestion> FromProto(const v1::SampleRequest& request) {
  if (request.model().empty()) {
    return FieldError(FieldReason::kMissingField, "model", "is missing");
  }
  RETURN_IF_ERROR(CheckPrompts(request));
  RETURN_IF_ERROR(CheckNumbers(request));
  SampleQuestion question;
  question.model = request.model();
  question.prompts = {request.prompts().begin(), request.prompts().end()};
  if (request.max_new_tokens() > 0) {
    question.max_new_tokens = request.max_new_tokens();
  }
  question.temperature = request.temperature();
  question.seed = request.seed();
  question.raw = request.raw();
  return question;
}

grpc::ServerWriteReactor<v1::SampleResponse>* BeginSample(
    SampleEngine* engine, const CallDoor& door,
    grpc::CallbackServerContext* context, const v1::SampleRequest& request) {
  using Response = v1::SampleResponse;
  return BeginStream<Response>(
      door, context, request, StreamKind::kSample,
      [&](const Entered& entered) -> MadeStream<Response> {
        ASSIGN_OR_RETURN(SampleQuestion question, FromProto(request));
        question.caller = entered.caller;
        auto mailbox = std::make_shared<Mailbox>(door.pump);
        const absl::Status taken = door.queue->Run(
            ShareOf(entered.caller), [engine, question, mailbox] {
              if (!mailbox->cancelled()) engine->Start(question, mailbox);
            });
        if (!taken.ok()) mailbox->OnEnd(taken);
        return std::make_shared<SampleStream>(door.pump, context, engine,
                                              mailbox);
      });
}

}  // namespace roundhouse
