#include "tests/sim/history_samples.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/job_plan.h"

namespace roundhouse::sim {
namespace {

// What is with a device may wait for the slot that runs there.
constexpr absl::Duration kMostWithdrawn = absl::Minutes(2);

}  // namespace

// What one was asked and has been told.
struct HistorySamples::Asked final : SampleSink {
  std::string name;
  SampleQuestion question;
  std::vector<std::vector<int32_t>> tokens;  // by prompt
  std::vector<std::string> texts;
  int ends = 0;
  absl::Status end;
  bool late = false;       // something came after the end, or was not wanted
  bool withdrawn = false;  // the daemon has heard of it
  std::atomic<bool> gone = false;
  absl::Time gone_since;

  void OnSource(const std::string&) override { late |= ends > 0; }
  void OnPiece(SamplePiece piece) override {
    late |= ends > 0 || withdrawn;
    const size_t prompt = static_cast<size_t>(piece.prompt);
    std::vector<int32_t>& all = tokens.at(prompt);
    all.insert(all.end(), piece.tokens.begin(), piece.tokens.end());
    texts.at(prompt) += piece.text;
  }
  void OnEnd(absl::Status status) override {
    if (ends++ == 0) end = std::move(status);
  }
  bool cancelled() const override { return gone; }
};

HistorySamples::HistorySamples() = default;
HistorySamples::~HistorySamples() = default;

void HistorySamples::Ask(SimServer& server, const SampleQuestion& question) {
  const auto asked = std::make_shared<Asked>();
  asked->name = absl::StrCat("sample-", ++counts_.asked);
  asked->question = question;
  asked->tokens.resize(question.prompts.size());
  asked->texts.resize(question.prompts.size());
  open_.push_back(asked);
  server.Call<bool>([&] {
    server.engine().sampler().Start(question, asked);
    return true;
  });
}

std::string HistorySamples::Withdraw(SimServer& server, uint64_t number) {
  if (open_.empty()) return "";
  const std::shared_ptr<Asked> asked = open_[number % open_.size()];
  if (!asked->gone.exchange(true)) asked->gone_since = server.now();
  server.Call<bool>([&] {
    server.engine().sampler().Cancel(asked.get());
    return true;
  });
  asked->withdrawn = true;
  return asked->name;
}

void HistorySamples::OnCrash() { open_.clear(); }

absl::Status HistorySamples::Look(absl::Time now) {
  for (const auto& asked : open_) {
    if (asked->ends == 0) {
      RETURN_IF_ERROR(CheckOpen(*asked, now));
      continue;
    }
    RETURN_IF_ERROR(CheckEnd(*asked));
    ++(asked->end.ok() ? counts_.answered
       : asked->gone   ? counts_.withdrawn
                       : counts_.failed);
  }
  std::erase_if(open_, [](const auto& asked) { return asked->ends > 0; });
  return absl::OkStatus();
}

absl::Status HistorySamples::CheckOpen(const Asked& asked,
                                       absl::Time now) const {
  if (!asked.gone || now <= asked.gone_since + kMostWithdrawn) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(asked.name, " was withdrawn long ago and does not end"));
}

// What is no fault of the daemon's.
bool HistorySamples::MayFail(const Asked& asked) const {
  const absl::Status& end = asked.end;
  if (absl::IsCancelled(end)) return asked.gone;
  if (absl::IsInternal(end)) {
    return absl::StrContains(end.message(), "the devices of a sample died") ||
           (helper_died_ && absl::StrContains(end.message(), "signal 9"));
  }
  return absl::IsFailedPrecondition(end) || absl::IsResourceExhausted(end);
}

absl::Status HistorySamples::CheckEnd(const Asked& asked) const {
  const auto broken = [&](const std::string& what) {
    return absl::InternalError(absl::StrCat(asked.name, " ", what));
  };
  if (asked.ends != 1 || asked.late)
    return broken("goes on after its end, or though it was withdrawn");
  if (!asked.end.ok() && !MayFail(asked)) {
    return broken(absl::StrCat("ends with ", asked.end.ToString()));
  }
  for (size_t i = 0; i < asked.tokens.size(); ++i) {
    const std::vector<int32_t>& drawn = asked.tokens[i];
    const std::vector<int32_t> all =
        CompletionOf(asked.question.prompts[i], asked.question.max_new_tokens);
    const bool begins = drawn.size() <= all.size() &&
                        std::equal(drawn.begin(), drawn.end(), all.begin());
    if (!begins || asked.texts[i] != LettersOf(drawn)) {
      return broken(absl::StrCat("has ", asked.texts[i], " in place of ",
                                 LettersOf(all)));
    }
    if (asked.end.ok() && drawn.size() < all.size()) {
      return broken(absl::StrCat("is over after ", asked.texts[i], " of ",
                                 LettersOf(all)));
    }
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::sim
