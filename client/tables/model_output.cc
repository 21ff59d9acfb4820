#include "client/tables/model_output.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

// The problem without the directory that the line or table names beside it.
std::string ProblemText(const v1::Model& model) {
  absl::string_view problem = model.problem();
  if (!model.path().empty()) {
    absl::ConsumePrefix(&problem, absl::StrCat(model.path(), "/"));
  }
  return std::string(problem);
}

// "9.3 GiB", with what it says when that does not fit.
std::string NeedText(const v1::MethodNeed& need) {
  if (need.fits()) return FormatBytes(need.host_bytes());
  if (need.host_bytes() == 0) return "no";
  return absl::StrCat("no (", FormatBytes(need.host_bytes()), ")");
}

std::string KindText(const v1::Model& model) {
  if (!model.adapter()) return model.family();
  return absl::StrCat("adapter of ",
                      model.base_model().empty() ? "?" : model.base_model());
}

std::string LongNeedText(const v1::MethodNeed& need, int64_t limit) {
  if (!need.problem().empty()) return "no: " + need.problem();
  return absl::StrCat(FormatBytes(need.host_bytes()), " of ",
                      FormatBytes(limit), " host memory");
}

// What the table has no room for: why something is a "no", a line each.
std::string ReasonsText(const v1::ListModelsResponse& response) {
  std::string text;
  int64_t limit_bytes = 0;
  bool unusable = false;
  for (const v1::Model& model : response.models()) {
    const std::string name = VisibleLine(model.name());
    if (!model.problem().empty()) {
      unusable = true;
      absl::StrAppend(
          &text, name, " is not usable: ",
          VisibleLine(model.name() == model.path() ? ProblemText(model)
                                                   : model.problem()),
          "\n");
    }
    for (const auto& [method, need] :
         {std::pair{"full", &model.full()}, {"lora", &model.lora()}}) {
      if (need->fits() || need->problem().empty()) continue;
      if (need->host_bytes() > 0) {
        limit_bytes = model.host_limit_bytes();
      } else {
        absl::StrAppend(&text, name, " can't be trained with method: ", method,
                        ": ", VisibleLine(need->problem()), "\n");
      }
    }
  }
  if (unusable) {
    absl::StrAppend(&text,
                    "What is not usable needs its file put right, or fetched "
                    "again; docs/models.md says which models there can be.\n");
  }
  if (limit_bytes > 0) {
    absl::StrAppend(&text, "\"no (SIZE)\" is more than the ",
                    FormatBytes(limit_bytes),
                    " of host memory that jobs may have.\n");
  }
  return text;
}

}  // namespace

std::string ModelTable(const v1::ListModelsResponse& response) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "FAMILY", "PARAMETERS", "DTYPE", "SIZE", "FULL", "LORA"}};
  for (const v1::Model& model : response.models()) {
    const bool usable = model.problem().empty();
    rows.push_back(
        {model.name(), usable ? KindText(model) : "not usable",
         usable ? FormatCount(static_cast<double>(model.parameters())) : "",
         model.dtype(), usable ? FormatBytes(model.bytes()) : "",
         model.has_full() ? NeedText(model.full()) : "",
         model.has_lora() ? NeedText(model.lora()) : ""});
  }
  return FormatTable(rows) + ReasonsText(response);
}

std::string ModelText(const v1::Model& model) {
  std::vector<std::vector<std::string>> rows = {{"name:", model.name()},
                                                {"path:", model.path()}};
  if (!model.problem().empty()) {
    rows.push_back({"not usable:", ProblemText(model)});
    return FormatTable(rows);
  }
  rows.push_back({"family:", KindText(model)});
  rows.push_back({"parameters:", absl::StrCat(model.parameters())});
  rows.push_back({"dtype:", model.dtype()});
  rows.push_back({"size:", FormatBytes(model.bytes())});
  const int64_t limit = model.host_limit_bytes();
  if (model.has_full()) {
    rows.push_back({"full:", LongNeedText(model.full(), limit)});
  }
  if (model.has_lora()) {
    rows.push_back({"lora:", LongNeedText(model.lora(), limit)});
  }
  return FormatTable(rows);
}

}  // namespace roundhouse::client
