#include "server/api/dataset_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/api/inspection_call.h"

namespace roundhouse {
namespace {

using nlohmann::json;

DatasetQuestion Question(const v1::DatasetOptions& options) {
  DatasetQuestion question;
  question.dataset = {options.dataset()};
  question.model_name_or_path = options.model_name_or_path();
  question.max_length = options.max_length();
  question.truncation = options.truncation();
  question.packing = options.packing();
  if (options.has_seed()) question.seed = options.seed();
  question.template_date = options.template_date();
  return question;
}

// `convert` may throw json::exception.
template <typename Message>
absl::StatusOr<Message> FromHelper(const std::string& text,
                                   void (*convert)(const json&, Message*)) {
  Message message;
  try {
    convert(json::parse(text), &message);
  } catch (const json::exception& error) {
    return absl::InternalError(
        absl::StrCat("the dataset helper's answer: ", error.what()));
  }
  return message;
}

template <typename Numbers>
void AddLines(const json& lines, Numbers* out) {
  for (const json& line : lines) out->Add(line.get<int64_t>());
}

void ConvertDropped(const json& report, v1::ValidateDatasetResponse* out) {
  for (const auto& [reason, rows] : report.at("dropped").items()) {
    v1::DatasetRows* dropped = out->add_dropped();
    dropped->set_reason(reason);
    dropped->set_rows(rows.get<int64_t>());
    AddLines(report.at("dropped_lines").at(reason), dropped->mutable_lines());
  }
}

void ConvertWarnings(const json& report, v1::ValidateDatasetResponse* out) {
  for (const auto& [name, rows] : report.at("ignored_fields").items()) {
    v1::IgnoredField* field = out->add_ignored_fields();
    field->set_name(name);
    field->set_rows(rows.get<int64_t>());
  }
  for (const json& given : report.at("warnings")) {
    v1::DatasetWarning* warning = out->add_warnings();
    warning->set_kind(given.at("kind").get<std::string>());
    std::string text = given.at("warning").get<std::string>();
    warning->set_rows(given.at("rows").get<int64_t>());
    if (given.contains("places")) {  // of several files
      const auto places = given["places"].get<std::vector<std::string>>();
      absl::StrAppend(&text, " (", absl::StrJoin(places, ", "), ")");
    } else {
      AddLines(given.at("lines"), warning->mutable_lines());
    }
    warning->set_message(text);
  }
}

void ConvertReport(const json& answer, v1::ValidateDatasetResponse* out) {
  const json& report = answer.at("report");
  const auto number = [&report](const char* name) {
    return report.at(name).get<int64_t>();
  };
  out->set_format(report.at("format").get<std::string>());
  out->set_rows(number("rows"));
  out->set_sequences(number("sequences"));
  out->set_tokens(number("tokens"));
  out->set_target_tokens(number("target_tokens"));
  out->set_max_sequence_tokens(number("max_sequence_tokens"));
  out->set_truncated(number("truncated"));
  AddLines(report.at("truncated_lines"), out->mutable_truncated_lines());
  out->set_boundary_merged(number("boundary_merged"));
  ConvertDropped(report, out);
  ConvertWarnings(report, out);
  if (!report.contains("packed_rows")) return;
  out->set_packed_rows(number("packed_rows"));
  out->set_max_row_tokens(number("max_row_tokens"));
}

void ConvertSamples(const json& answer, v1::PreviewDatasetResponse* out) {
  out->set_format(answer.at("format").get<std::string>());
  for (const json& given : answer.at("samples")) {
    v1::DatasetSample* sample = out->add_samples();
    sample->set_line(given.at("line").get<int64_t>());
    sample->set_tokens(given.at("tokens").get<int64_t>());
    sample->set_target_tokens(given.at("target_tokens").get<int64_t>());
    for (const json& part : given.at("spans")) {
      v1::DatasetSpan* span = sample->add_spans();
      span->set_text(part.at("text").get<std::string>());
      span->set_trained(part.at("trained").get<bool>());
    }
  }
}

}  // namespace

absl::StatusOr<v1::ValidateDatasetResponse> ReportFromJson(
    const std::string& text) {
  return FromHelper<v1::ValidateDatasetResponse>(text, ConvertReport);
}

absl::StatusOr<v1::PreviewDatasetResponse> SamplesFromJson(
    const std::string& text) {
  return FromHelper<v1::PreviewDatasetResponse>(text, ConvertSamples);
}

grpc::ServerUnaryReactor* DatasetService::ValidateDataset(
    grpc::CallbackServerContext* context,
    const v1::ValidateDatasetRequest* request,
    v1::ValidateDatasetResponse* response) {
  return RunInspection(
      inspector_, work_, context,
      [request] { return Question(request->options()); },
      [response](const std::string& text) -> absl::Status {
        ASSIGN_OR_RETURN(*response, ReportFromJson(text));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* DatasetService::PreviewDataset(
    grpc::CallbackServerContext* context,
    const v1::PreviewDatasetRequest* request,
    v1::PreviewDatasetResponse* response) {
  return RunInspection(
      inspector_, work_, context,
      [request] {
        DatasetQuestion question = Question(request->options());
        question.samples = request->samples() == 0 ? kDefaultPreviewSamples
                                                   : request->samples();
        return question;
      },
      [response](const std::string& text) -> absl::Status {
        ASSIGN_OR_RETURN(*response, SamplesFromJson(text));
        return absl::OkStatus();
      });
}

}  // namespace roundhouse
