#include "client/error_text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/visible_text.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace roundhouse::client {
namespace {

struct Violation {
  std::string subject;
  std::string description;
};

using Violations = std::vector<Violation>;

template <typename Detail>
bool Unpack(const google::protobuf::Any& any, Detail* detail) {
  return any.Is<Detail>() && any.UnpackTo(detail);
}

void AddViolations(const google::protobuf::Any& any, Violations* out) {
  google::rpc::BadRequest bad_request;
  if (Unpack(any, &bad_request)) {
    for (const auto& violation : bad_request.field_violations()) {
      out->push_back({violation.field(), violation.description()});
    }
  }
  google::rpc::PreconditionFailure precondition;
  if (Unpack(any, &precondition)) {
    for (const auto& violation : precondition.violations()) {
      out->push_back({violation.subject(), violation.description()});
    }
  }
  google::rpc::QuotaFailure quota;
  if (Unpack(any, &quota)) {
    for (const auto& violation : quota.violations()) {
      out->push_back({violation.subject(), violation.description()});
    }
  }
  google::rpc::ResourceInfo resource;
  if (Unpack(any, &resource)) {
    out->push_back({resource.resource_name(), resource.description()});
  }
}

Violations ViolationsOf(const grpc::Status& status) {
  Violations violations;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) {
    return violations;
  }
  for (const google::protobuf::Any& any : details.details()) {
    AddViolations(any, &violations);
  }
  return violations;
}

bool Says(const std::string& message, const Violation& violation) {
  return message.find(violation.description) != std::string::npos;
}

// What a field of the API is on a command line.
struct FieldWord {
  absl::string_view command;
  absl::string_view field;
  // "": the command's argument, which stands before the message.
  absl::string_view word;
};

constexpr FieldWord kFieldWords[] = {
    {"dataset", "dataset", ""},
    {"dataset", "dataset_columns", "--dataset-columns"},
    {"dataset", "dataset_format", "--dataset-format"},
    {"dataset", "max_length", "--max-length"},
    {"dataset", "max_samples", "--max-samples"},
    {"dataset", "model_name_or_path", "--model"},
    {"dataset", "packing", "--packing"},
    {"dataset", "samples", "--samples"},
    {"dataset", "seed", "--seed"},
    {"dataset", "truncation", "--truncation"},
    {"dataset", "validation_split", "--validation-split"},
    {"export", "dtype", "--dtype"},
    {"export", "kind", "--merge"},
    {"export", "output", "--output"},
    {"export", "source", ""},
    {"list", "page_size", "--limit"},
    {"list", "states", "--state"},
    {"logs", "tail_lines", "--tail"},
    {"plan", "batch_size", "--batch-size"},
    {"plan", "determinism", "--determinism"},
    {"plan", "devices", "--devices"},
    {"plan", "gradient_checkpointing", "--gradient-checkpointing"},
    {"plan", "host_bandwidth", "--host-bandwidth"},
    {"plan", "host_memory_bytes", "--host-memory"},
    {"plan", "lora_r", "--lora-r"},
    {"plan", "max_grad_norm", "--max-grad-norm"},
    {"plan", "max_length", "--max-length"},
    {"plan", "method", "--method"},
    {"plan", "micro_batch_size", "--micro-batch-size"},
    {"plan", "model", "--model"},
    {"plan", "model_name_or_path", "--model"},
    {"plan", "saved_inputs", "--saved-inputs"},
    {"plan", "target_modules", "--target-modules"},
    {"plan", "timeline", "--trace"},
    {"sample", "max_new_tokens", "--max-new-tokens"},
    {"sample", "model", ""},
    {"sample", "prompts", "--prompt"},
    {"sample", "seed", "--seed"},
    {"sample", "temperature", "--temperature"},
    {"submit", "request_id", "--request-id"},
    {"trace", "steps", "--steps"},
};

// Commands whose errors name a file and a line of it.
constexpr absl::string_view kFileCommands[] = {"dataset", "submit"};

absl::string_view CommandOf(absl::string_view doing) {
  return doing.substr(0, doing.find(' '));
}

std::optional<absl::string_view> WordOf(absl::string_view command,
                                        absl::string_view field) {
  for (const FieldWord& known : kFieldWords) {
    if (known.command == command && known.field == field) return known.word;
  }
  // The job, or the model, of any command with one argument.
  if (command != "submit" && field == "name") return "";
  return std::nullopt;
}

// The message, its field (where it begins with one) as the user wrote it.
std::string AsTyped(absl::string_view command, const std::string& message) {
  const size_t end = std::min(
      message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), message.size());
  const auto word = WordOf(command, message.substr(0, end));
  if (!word.has_value()) return message;
  absl::string_view rest = message;
  rest.remove_prefix(end);
  if (!word->empty() &&
      (absl::StartsWith(rest, ": ") || absl::StartsWith(rest, " \""))) {
    return absl::StrCat("flag ", *word, rest);
  }
  return word->empty() && absl::ConsumePrefix(&rest, ": ") ? std::string(rest)
                                                           : message;
}

// Whether the message begins with `file`, as given or below a directory, and
// says what about it or where in it.
bool IsAbout(absl::string_view message, absl::string_view file) {
  if (file.empty() || file == "-") return false;
  const size_t at = message.find(file);
  if (at == absl::string_view::npos) return false;
  const absl::string_view before = message.substr(0, at);
  if (at > 0 && (before.front() != '/' || before.back() != '/' ||
                 absl::StrContains(before, ':'))) {
    return false;
  }
  message.remove_prefix(at + file.size());
  return absl::StartsWith(message, ":") || absl::StartsWith(message, " has ");
}

// Whether the message names the file that `doing` names.
bool NamesTheFile(absl::string_view doing, absl::string_view message) {
  const absl::string_view command = CommandOf(doing);
  if (std::find(std::begin(kFileCommands), std::end(kFileCommands), command) ==
      std::end(kFileCommands)) {
    return false;
  }
  for (size_t space = doing.find(' '); space != absl::string_view::npos;
       space = doing.find(' ', space + 1)) {
    // A name may have blanks, and there may be several names.
    const absl::string_view rest = doing.substr(space + 1);
    if (IsAbout(message, rest) ||
        IsAbout(message, rest.substr(0, rest.find(' ')))) {
      return true;
    }
  }
  return false;
}

// "" where the description names it.
std::string SubjectText(const Violation& violation) {
  const std::string subject = absl::StrCat(violation.subject, ": ");
  if (violation.subject.empty() ||
      absl::StartsWith(violation.description, violation.subject) ||
      absl::StrContains(violation.description, subject)) {
    return "";
  }
  return VisibleLine(subject);
}

std::string CodeName(const grpc::Status& status) {
  return absl::StatusCodeToString(
      static_cast<absl::StatusCode>(status.error_code()));
}

bool HasDetails(const grpc::Status& status) {
  google::rpc::Status details;
  return details.ParseFromString(status.error_details()) &&
         details.details_size() > 0;
}

// "" where the server's own words say it all.  What has no details is gRPC's;
// to wait, or to ask for less, is what the other codes tell.
std::string CodeText(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      if (HasDetails(status)) return "";
      [[fallthrough]];
    default:
      return CodeName(status) + ": ";
  }
}

// The command that helps, which the server does not know.
std::string Remedy(const grpc::Status& status, const std::string& message) {
  return status.error_code() == grpc::StatusCode::NOT_FOUND &&
                 absl::StartsWith(message, "there is no job ") &&
                 !absl::StrContains(message, ';')
             ? "; roundhouse list shows them"
             : "";
}

// The first line: what was tried and what is wrong with it.
std::string HeadText(const std::string& doing, const grpc::Status& status) {
  const std::string& message = status.error_message();
  if (NamesTheFile(doing, message)) {
    return absl::StrCat("roundhouse: ", MessageText(message), "\n");
  }
  const std::string typed = AsTyped(CommandOf(doing), message);
  return absl::StrCat("roundhouse: ", VisibleLine(doing), ": ",
                      CodeText(status), MessageText(typed),
                      Remedy(status, typed), "\n");
}

// What gRPC says when nobody can be reached, around the system's reason.
std::optional<std::string> NoConnection(const grpc::Status& status) {
  const std::string& message = status.error_message();
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      !status.error_details().empty() ||
      !absl::StartsWith(message, "failed to connect to all addresses")) {
    return std::nullopt;
  }
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// As loud as ssh is about another host key.
std::string OtherCertificateText(const std::string& message,
                                 const ServerAddress& address) {
  const size_t at = message.find(kOtherCertificate);
  std::string shown = message.substr(at + sizeof(kOtherCertificate) - 1);
  shown = shown.substr(0, shown.find_first_of(" ,;\n"));
  return absl::StrCat(
      "roundhouse: THE CERTIFICATE OF ", VisibleLine(address.tls.server),
      " HAS CHANGED.\n"
      "Somebody may be listening in.  Nothing was sent.\n"
      "  remembered: ",
      VisibleLine(address.tls.fingerprint),
      "\n  shown:      ", VisibleLine(shown),
      "\nAsk the server's admin; its log shows the right one.  If this is it: "
      "roundhouse login ",
      VisibleLine(address.tls.server), " --fingerprint=", VisibleLine(shown),
      "\n");
}

// What to do where nobody could be talked to.
std::string NoConnectionRemedy(const std::string& reason,
                               const ServerAddress& address) {
  if (!address.tls.server.empty() && absl::StrContains(reason, "verify")) {
    return absl::StrCat(
        "This machine does not know the server's certificate: roundhouse "
        "login ",
        VisibleLine(address.tls.server), " shows and remembers it.");
  }
  if (!address.tls.server.empty()) {
    return "Is roundhoused running there, with --listen-tls?  --server or "
           "ROUNDHOUSE_SERVER names another address.";
  }
  return reason == "Permission denied"
             ? "Ask the server's admin for access to the socket and its folder."
             : "Is roundhoused running there?  --server or ROUNDHOUSE_SERVER "
               "names another address.";
}

std::string NoConnectionText(const std::string& doing,
                             const std::string& reason,
                             const ServerAddress& address) {
  return absl::StrCat("roundhouse: ", VisibleLine(doing), ": no answer from ",
                      VisibleLine(address.target), " (",
                      VisibleLine(address.source), "): ", VisibleLine(reason),
                      "\n", NoConnectionRemedy(reason, address), "\n");
}

}  // namespace

std::string MessageText(const std::string& message) {
  return absl::StrReplaceAll(VisibleText(message), {{"\n", "\n    "}});
}

std::string BrokenText(const grpc::Status& status,
                       const ServerAddress& address) {
  if (const auto reason = NoConnection(status)) {
    return absl::StrCat("roundhouse: no answer from ",
                        VisibleLine(address.target), ": ", VisibleLine(*reason),
                        "; trying again\n");
  }
  return absl::StrCat("roundhouse: the connection broke",
                      status.error_message().empty() ? "" : ": ",
                      MessageText(status.error_message()), "; trying again\n");
}

bool CertificateRefused(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         status.error_details().empty() &&
         absl::StrContains(status.error_message(), kOtherCertificate);
}

bool BrokeOnTheWay(const grpc::Status& status) {
  if (CertificateRefused(status)) return false;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::CANCELLED:
      return true;
    // A connection cut in the middle of a message, as gRPC tells it; what the
    // server has to say of a fault of its own has details.
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return status.error_details().empty();
    default:
      return false;
  }
}

std::string ErrorText(const std::string& doing, const grpc::Status& status,
                      const ServerAddress& address) {
  if (CertificateRefused(status)) {
    return OtherCertificateText(status.error_message(), address);
  }
  if (const auto reason = NoConnection(status)) {
    return NoConnectionText(doing, *reason, address);
  }
  std::string text = HeadText(doing, status);
  for (const Violation& violation : ViolationsOf(status)) {
    if (Says(status.error_message(), violation)) {
      continue;
    }
    absl::StrAppend(&text, "  ",
                    AsTyped(CommandOf(doing),
                            absl::StrCat(SubjectText(violation),
                                         MessageText(violation.description))),
                    "\n");
  }
  // What the server says of itself has details.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      status.error_details().empty()) {
    absl::StrAppend(&text, "No answer from ", VisibleLine(address.target), " (",
                    VisibleLine(address.source),
                    "); is roundhoused running there?  Another address is "
                    "given with --server or ROUNDHOUSE_SERVER.\n");
  }
  return text;
}

}  // namespace roundhouse::client
