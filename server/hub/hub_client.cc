#include "server/hub/hub_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/model/json.h"
#include "base/status.h"
#include "server/hub/hub_refusal.h"

namespace roundhouse {
namespace {

// Takes the bytes of one file as answers bring them, wherever these begin.
class FileBytes {
 public:
  using Take = std::function<absl::Status(absl::string_view)>;

  FileBytes(const HubFile& file, uint64_t at, const Take& take)
      : file_(file), at_(at), take_(take) {}

  uint64_t at() const { return at_; }
  bool is_whole() const { return at_ == file_.bytes; }

  void BeginAnswer() { answer_at_.reset(); }

  absl::Status Add(const WebHead& head, absl::string_view data) {
    if (head.total.value_or(file_.bytes) != file_.bytes) {
      return Refused(absl::StrCat(QuoteForError(file_.name), ": the hub sends ",
                                  *head.total, " bytes, and lists ",
                                  file_.bytes));
    }
    if (!answer_at_.has_value()) answer_at_ = head.begin;
    if (*answer_at_ > at_) {
      return Refused(absl::StrCat(QuoteForError(file_.name),
                                  ": the hub sends bytes from ", *answer_at_,
                                  " on, asked for those from ", at_));
    }
    if (data.size() > file_.bytes - *answer_at_) {
      return Refused(absl::StrCat(QuoteForError(file_.name),
                                  ": the hub sends more than the ", file_.bytes,
                                  " bytes that it lists"));
    }
    // A hub that can't begin in the middle sends what is there already.
    const uint64_t known = std::min<uint64_t>(data.size(), at_ - *answer_at_);
    *answer_at_ += data.size();
    if (known == data.size()) return absl::OkStatus();
    RETURN_IF_ERROR(take_(data.substr(known)));
    at_ += data.size() - known;
    return absl::OkStatus();
  }

 private:
  const HubFile& file_;
  uint64_t at_;
  const Take& take_;
  std::optional<uint64_t> answer_at_;  // where the answer is; none: not begun
};

}  // namespace

absl::Status HubClient::StatusOf(const WebHead& head) const {
  const std::string answer =
      absl::StrCat("the hub ", hub_.origin().Text(), " answered ", head.status);
  switch (head.status) {
    case 200:
    case 206:
      return absl::OkStatus();
    case 401:
    case 403:
      return Refused(absl::StrCat(
          answer,
          ": it has no such model, or does not give it to this server; for one "
          "that is gated or private an admin sets --hub-token-file"));
    case 404:
    case 410:
      return absl::NotFoundError(
          absl::StrCat(answer, ": it has no such model or revision"));
    case 416:
      return Refused(absl::StrCat(answer, ": a file is shorter than it lists"));
    default:
      break;
  }
  const bool passes = head.status == 408 || head.status == 425 ||
                      head.status == 429 || head.status >= 500;
  return passes ? absl::UnavailableError(answer) : Refused(answer);
}

HubClient::Attempt HubClient::Ask(const WebRequest& request,
                                  const WebSink& take) {
  Attempt attempt;
  const absl::StatusOr<WebHead> head = source_.Get(request, take);
  attempt.status = head.status();
  if (!head.ok()) return attempt;
  attempt.status = StatusOf(*head);
  attempt.asked_wait = head->retry_after;
  return attempt;
}

absl::Status HubClient::Persist(const std::function<Attempt()>& attempt) {
  absl::Duration wait = patience_.first_wait;
  for (int failures = 1;; ++failures) {
    const Attempt tried = attempt();
    if (tried.is_ours || !absl::IsUnavailable(tried.status)) {
      return tried.status;
    }
    if (tried.moved) {
      failures = 1;
      wait = patience_.first_wait;
    }
    const std::string why(tried.status.message());
    if (failures >= patience_.tries ||
        tried.asked_wait > patience_.longest_asked) {
      return absl::DeadlineExceededError(absl::StrCat(
          why,
          failures > 1 ? absl::StrCat(", ", failures, " times in a row") : "",
          "; what has come is kept, the same pull goes on with it later"));
    }
    if (!wait_(why, std::max(wait, tried.asked_wait))) {
      return absl::CancelledError("stopped");
    }
    wait = std::min(2 * wait, patience_.longest_wait);
  }
}

absl::StatusOr<HubListing> HubClient::List(const HubName& model) {
  std::string text;
  RETURN_IF_ERROR(Persist([&] {
    text.clear();
    return Ask(
        {.url = hub_.ListingUrl(model), .limit = kWholeAnswerLimit},
        [&text](const WebHead&, absl::string_view data) {
          if (data.size() > kMaxListingBytes - text.size()) {
            return Refused(absl::StrCat("the hub's answer has more than ",
                                        kMaxListingBytes, " bytes"));
          }
          text.append(data.data(), data.size());
          return absl::OkStatus();
        });
  }));
  return ParseListing(text);
}

absl::Status HubClient::Read(
    const std::string& id, const std::string& commit, const HubFile& file,
    uint64_t from, const std::function<absl::Status(absl::string_view)>& take) {
  return ReadWithin(absl::InfiniteDuration(), id, commit, file, from, take);
}

absl::Status HubClient::ReadWithin(
    absl::Duration limit, const std::string& id, const std::string& commit,
    const HubFile& file, uint64_t from,
    const std::function<absl::Status(absl::string_view)>& take) {
  absl::Status taken;
  const FileBytes::Take keep = [&](absl::string_view data) {
    taken = take(data);
    return taken;
  };
  FileBytes bytes(file, from, keep);
  const std::string url = hub_.FileUrl(id, commit, file.name);
  return Persist([&] {
    if (bytes.is_whole()) return Attempt();
    const uint64_t before = bytes.at();
    bytes.BeginAnswer();
    Attempt attempt =
        Ask({.url = url, .from = before, .limit = limit},
            [&bytes](const WebHead& head, absl::string_view data) {
              return bytes.Add(head, data);
            });
    if (!taken.ok()) return Attempt{.status = taken, .is_ours = true};
    attempt.moved =
        bytes.is_whole() || bytes.at() - before >= patience_.moved_bytes;
    if (attempt.status.ok() && !bytes.is_whole()) {
      attempt.status = absl::UnavailableError(
          absl::StrCat("the hub ended ", QuoteForError(file.name), " after ",
                       bytes.at(), " of ", file.bytes, " bytes"));
    }
    return attempt;
  });
}

absl::StatusOr<std::string> HubClient::ReadWhole(const std::string& id,
                                                 const std::string& commit,
                                                 const HubFile& file) {
  if (file.bytes > MaxWholeBytes(file)) {
    return Refused(absl::StrCat(QuoteForError(file.name), ": ", file.bytes,
                                " bytes, at most ", MaxWholeBytes(file),
                                " are read of such a file"));
  }
  std::string data;
  RETURN_IF_ERROR(ReadWithin(kWholeAnswerLimit, id, commit, file, 0,
                             [&data](absl::string_view piece) {
                               data.append(piece.data(), piece.size());
                               return absl::OkStatus();
                             }));
  RETURN_IF_ERROR(CheckWhole(file, data));
  return data;
}

}  // namespace roundhouse
