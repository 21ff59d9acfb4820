#include "server/api/dataset_service.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/api/inspection_call.h"

namespace roundhouse {
namespace {

using nlohmann::json;

DatasetQuestion Question(const v1::DatasetOptions& options) {
  DatasetQuestion question;
  question.dataset = {options.dataset()};
  question.dataset.insert(question.dataset.end(),
                          options.more_datasets().begin(),
                          options.more_datasets().end());
  question.format = options.dataset_format();
  const std::map<std::string, std::string> columns(
      options.dataset_columns().begin(), options.dataset_columns().end());
  question.columns.assign(columns.begin(), columns.end());
  question.validation_split = options.validation_split();
  question.max_samples = options.max_samples();
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

// Lines of several files are numbered through; their warnings say the places.
bool SeveralFiles(const json& report) { return report.contains("inputs"); }

void ConvertDropped(const json& report, v1::ValidateDatasetResponse* out) {
  for (const auto& [reason, rows] : report.at("dropped").items()) {
    v1::DatasetRows* dropped = out->add_dropped();
    dropped->set_reason(reason);
    dropped->set_rows(rows.get<int64_t>());
    if (SeveralFiles(report)) continue;
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
  if (!SeveralFiles(report)) {
    AddLines(report.at("truncated_lines"), out->mutable_truncated_lines());
  }
  out->set_boundary_merged(number("boundary_merged"));
  ConvertDropped(report, out);
  ConvertWarnings(report, out);
  if (!report.contains("packed_rows")) return;
  out->set_packed_rows(number("packed_rows"));
  out->set_max_row_tokens(number("max_row_tokens"));
}

void ConvertSamples(const json& answer, v1::PreviewDatasetResponse* out) {
  out->set_format(answer.at("format").get<std::string>());
  out->set_rows(answer.at("rows").get<int64_t>());
  out->set_whole(answer.at("whole").get<bool>());
  for (const json& given : answer.at("samples")) {
    v1::DatasetSample* sample = out->add_samples();
    sample->set_line(given.at("line").get<int64_t>());
    sample->set_tokens(given.at("tokens").get<int64_t>());
    sample->set_target_tokens(given.at("target_tokens").get<int64_t>());
    sample->set_place(given.value("place", ""));
    for (const json& part : given.at("spans")) {
      v1::DatasetSpan* span = sample->add_spans();
      span->set_text(part.at("text").get<std::string>());
      span->set_trained(part.at("trained").get<bool>());
    }
  }
}

// "text (line 3)", "text (lines 3, 4, ...)"; of several files by their places.
std::string WarningText(const json& given) {
  std::vector<std::string> places;
  if (given.contains("places")) {
    places = given["places"].get<std::vector<std::string>>();
  } else {
    for (const json& line : given.at("lines")) {
      places.push_back(absl::StrCat(line.get<int64_t>()));
    }
  }
  const std::string text = given.at("warning").get<std::string>();
  if (places.empty()) return text;
  const char* const word = given.contains("places") ? ""
                           : places.size() == 1     ? "line "
                                                    : "lines ";
  const bool more =
      given.at("rows").get<int64_t>() > static_cast<int64_t>(places.size());
  return absl::StrCat(text, " (", word, absl::StrJoin(places, ", "),
                      more ? ", ...)" : ")");
}

void ConvertWarningTexts(const json& answer, std::vector<std::string>* out) {
  for (const json& given : answer.at("warnings")) {
    out->push_back(WarningText(given));
  }
}

// Appends those of one answer, each behind `prefix`.
absl::Status AddWarnings(const std::string& answer, const char* prefix,
                         std::vector<std::string>* warnings) {
  ASSIGN_OR_RETURN(const auto found, FromHelper<std::vector<std::string>>(
                                         answer, ConvertWarningTexts));
  for (const std::string& text : found) {
    warnings->push_back(absl::StrCat(prefix, text));
  }
  return absl::OkStatus();
}

std::string RowsText(const v1::PreviewDatasetResponse& preview) {
  return absl::StrCat(preview.whole() ? "all " : "the first ", preview.rows(),
                      preview.rows() == 1 ? " row" : " rows");
}

// The first line, and the second or "".
std::pair<std::string, std::string> SplitAnswer(const std::string& text) {
  return absl::StrSplit(text, absl::MaxSplits('\n', 1));
}

}  // namespace

absl::StatusOr<v1::ValidateDatasetResponse> ReportFromJson(
    const std::string& text) {
  const std::pair<std::string, std::string> lines = SplitAnswer(text);
  ASSIGN_OR_RETURN(auto report, FromHelper<v1::ValidateDatasetResponse>(
                                    lines.first, ConvertReport));
  if (lines.second.empty()) return report;
  ASSIGN_OR_RETURN(
      *report.mutable_held_out(),
      FromHelper<v1::ValidateDatasetResponse>(lines.second, ConvertReport));
  return report;
}

absl::StatusOr<v1::PreviewDatasetResponse> SamplesFromJson(
    const std::string& text) {
  return FromHelper<v1::PreviewDatasetResponse>(text, ConvertSamples);
}

absl::StatusOr<FirstRows> FirstRowsFromJson(const std::string& text) {
  const std::pair<std::string, std::string> lines = SplitAnswer(text);
  ASSIGN_OR_RETURN(v1::PreviewDatasetResponse trained,
                   SamplesFromJson(lines.first));
  if (trained.samples_size() == 0) {
    return absl::InternalError("the dataset helper shows no sample");
  }
  FirstRows rows;
  RETURN_IF_ERROR(AddWarnings(lines.first, "dataset: ", &rows.warnings));
  bool whole = trained.whole();
  if (whole) rows.rows = trained.rows();
  rows.what =
      absl::StrCat("Read and checked: ", RowsText(trained), " of the dataset");
  if (!lines.second.empty()) {
    ASSIGN_OR_RETURN(const v1::PreviewDatasetResponse evaluated,
                     SamplesFromJson(lines.second));
    RETURN_IF_ERROR(
        AddWarnings(lines.second, "validation data: ", &rows.warnings));
    whole = whole && evaluated.whole();
    absl::StrAppend(&rows.what, ", ", RowsText(evaluated),
                    " of the validation data");
  }
  absl::StrAppend(&rows.what,
                  whole ? "."
                        : ". The rest is checked when the job's data are "
                          "prepared; `roundhouse dataset validate` checks all "
                          "of it now.");
  rows.sample.Swap(trained.mutable_samples(0));
  return rows;
}

grpc::ServerUnaryReactor* DatasetService::ValidateDataset(
    grpc::CallbackServerContext* context,
    const v1::ValidateDatasetRequest* request,
    v1::ValidateDatasetResponse* response) {
  return RunInspection(
      inspector_, door_, context, request,
      [request](const Entered&) -> absl::StatusOr<DatasetQuestion> {
        return Question(request->options());
      },
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
      inspector_, door_, context, request,
      [request](const Entered&) -> absl::StatusOr<DatasetQuestion> {
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
