#include "client/commands/model_pull.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/interrupt.h"
#include "client/tables/message_json.h"
#include "client/tables/upload_output.h"
#include "client/transfer/byte_progress.h"
#include "proto/roundhouse/v1/model.grpc.pb.h"

namespace roundhouse::client {
namespace {

// Names of files that are shown as left out.
constexpr int kMaxShown = 12;

v1::PullModelRequest RequestFor(const PullWish& wish) {
  v1::PullModelRequest request;
  request.set_model(wish.model);
  request.set_name(wish.name);
  request.set_project(wish.project);
  return request;
}

// What the bar says is done: another text begins another bar.
std::string DoingText(const v1::PullModelResponse& message) {
  switch (message.state()) {
    case v1::PULL_STATE_FETCHING:
      return absl::StrCat("file ", message.file(), " of ",
                          message.file_count());
    case v1::PULL_STATE_CHECKING:
      return "checking";
    default:
      return "";
  }
}

// Shows how far a pull is, and what it waits for.
class PullPrinter {
 public:
  explicit PullPrinter(Session* session)
      : session_(*session), progress_(&session->environment()) {}

  void Update(const v1::PullModelResponse& message) {
    if (!message.trouble().empty() && message.trouble() != trouble_) {
      progress_.Finish();
      session_.err() << "The hub: " << VisibleLine(message.trouble())
                     << "; it is tried again.\n"
                     << std::flush;
      doing_.clear();
    }
    trouble_ = message.trouble();
    const auto done = static_cast<uint64_t>(message.done_bytes());
    const std::string doing = DoingText(message);
    if (doing.empty() || !trouble_.empty()) return;
    if (doing != doing_) {
      progress_.Begin(doing, done,
                      static_cast<uint64_t>(message.total_bytes()));
    } else {
      progress_.Update(done);
    }
    doing_ = doing;
  }
  void Finish() {
    progress_.Finish();
    doing_.clear();
  }

 private:
  Session& session_;
  ByteProgress progress_;
  std::string doing_;
  std::string trouble_;
};

// One call; `last` becomes its last message.  `moved`: it brought bytes that
// its first message did not have.
grpc::Status PullOnce(const PullWish& wish, Session* session,
                      PullPrinter* printer, v1::PullModelResponse* last,
                      bool* moved) {
  // As long as the model is.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const auto reader =
      session->models().PullModel(context.get(), RequestFor(wish));
  int64_t first_bytes = -1;
  v1::PullModelResponse message;
  while (reader->Read(&message)) {
    if (first_bytes < 0 && message.total_bytes() > 0) {
      first_bytes = message.done_bytes();
    }
    *moved = *moved || (first_bytes >= 0 && message.done_bytes() > first_bytes);
    printer->Update(message);
    *last = message;
  }
  printer->Finish();
  return reader->Finish();
}

// Where the connection breaks, the server goes on with what it has.
grpc::Status PullWhole(const PullWish& wish, Session* session,
                       v1::PullModelResponse* last) {
  PullPrinter printer(session);
  const RetryPolicy& retry = session->environment().stream_retry;
  ProgressPrinter notes = session->PlainPrinter(&session->err());
  const StreamOptions options = session->Streams(&notes);
  for (int failures = 1;; ++failures) {
    bool moved = false;
    const grpc::Status status = PullOnce(wish, session, &printer, last, &moved);
    if (status.ok() || session->interrupt()->requested()) return status;
    if (moved) failures = 1;
    if (!BrokeOnTheWay(status) || failures >= retry.attempts) return status;
    options.on_broken(status, moved);
    if (!session->interrupt()->Wait(retry.DelayAfter(failures))) return status;
  }
}

ExitCode Detach(const PullWish& wish, Session* session) {
  const std::string name =
      wish.name.empty() ? "" : absl::StrCat(" --name=", wish.name);
  const std::string project =
      wish.project.empty() ? "" : absl::StrCat(" --project=", wish.project);
  session->err() << "Stopped.  What has come stays for 7 days; go on with:\n  "
                 << VisibleLine(session->CommandLine(
                        absl::StrCat("model pull ", wish.model, name, project)))
                 << "\n"
                 << std::flush;
  return ExitCode::kDetached;
}

void TellOf(const v1::PullModelResponse& pulled, Session* session) {
  const std::string reference = UploadReferenceText(pulled.upload());
  if (pulled.left_out_count() > 0) {
    std::vector<std::string> shown(pulled.left_out().begin(),
                                   pulled.left_out().end());
    shown.resize(std::min<size_t>(shown.size(), kMaxShown));
    const auto more = pulled.left_out_count() - static_cast<int>(shown.size());
    session->err() << "Left out, since training needs none of it: "
                   << VisibleLine(absl::StrJoin(shown, ", "))
                   << (more > 0 ? absl::StrCat(" and ", more, " more") : "")
                   << "\n";
  }
  session->err() << "Version " << pulled.upload().version() << " is commit "
                 << VisibleLine(pulled.commit()) << ".  A job file of project "
                 << VisibleLine(pulled.upload().project())
                 << " names it so:\n  model_name_or_path: "
                 << VisibleLine(reference) << "\n"
                 << std::flush;
  session->out() << VisibleLine(reference) << "\n";
}

}  // namespace

ExitCode PullModel(const PullWish& wish, Session* session) {
  const std::string doing = "model pull " + wish.model;
  v1::PullModelResponse last;
  const grpc::Status status = PullWhole(wish, session, &last);
  if (status.ok() && !last.has_upload()) {
    return session->Fail(doing, grpc::Status(grpc::StatusCode::INTERNAL,
                                             "the server named no model"));
  }
  if (!status.ok() && session->interrupt()->requested()) {
    return Detach(wish, session);
  }
  if (!status.ok()) return session->Fail(doing, status);
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText(MessageJson(last), 2) << "\n";
  } else {
    TellOf(last, session);
  }
  return ExitCode::kOk;
}

}  // namespace roundhouse::client
