#include "scheduler/plan/model_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/plan/csv.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {
namespace {

// How a column's number becomes a field.
struct Column {
  absl::string_view name;
  int64_t ModelCosts::*field;
  double scale;  // from the file's unit
  double least;  // in the file's unit
  double most;
};

constexpr double kMillisecond = 1e6;
constexpr double kGigabyte = 1e9;
constexpr double kMaxMs = 1e7;
constexpr double kMaxGb = 1e4;
constexpr double kMaxCount = 1e9;

constexpr std::array kColumns = {
    Column{"fwd_ms", &ModelCosts::forward_ns, kMillisecond, 1e-6, kMaxMs},
    Column{"bwd_ms", &ModelCosts::backward_ns, kMillisecond, 1e-6, kMaxMs},
    Column{"head_fwd_ms", &ModelCosts::head_forward_ns, kMillisecond, 0,
           kMaxMs},
    Column{"head_bwd_ms", &ModelCosts::head_backward_ns, kMillisecond, 0,
           kMaxMs},
    Column{"hop_ms", &ModelCosts::hop_ns, kMillisecond, 0, kMaxMs},
    Column{"layer_gb", &ModelCosts::layer_bytes, kGigabyte, 0, kMaxGb},
    Column{"head_gb", &ModelCosts::head_bytes, kGigabyte, 0, kMaxGb},
    Column{"grad_layer_gb", &ModelCosts::layer_gradient_bytes, kGigabyte, 0,
           kMaxGb},
    Column{"grad_head_gb", &ModelCosts::head_gradient_bytes, kGigabyte, 0,
           kMaxGb},
    Column{"tokens", &ModelCosts::tokens, 1, 1, kMaxCount},
    Column{"hidden", &ModelCosts::hidden, 1, 1, kMaxCount},
    Column{"heads", &ModelCosts::heads, 1, 1, kMaxCount},
    Column{"kv_heads", &ModelCosts::kv_heads, 1, 1, kMaxCount},
    Column{"head_dim", &ModelCosts::head_dim, 1, 1, kMaxCount},
    Column{"inner", &ModelCosts::inner, 1, 1, kMaxCount},
    Column{"experts_per_token", &ModelCosts::experts_per_token, 1, 1,
           kMaxCount},
};

absl::Status ReadNumber(const CsvRow& row, const Column& column,
                        ModelCosts& model) {
  ASSIGN_OR_RETURN(const std::string cell, row.Cell(column.name));
  double value = 0;
  // Written so that a NaN is refused.
  if (!absl::SimpleAtod(cell, &value) ||
      !(value >= column.least && value <= column.most)) {
    return row.Error(absl::StrCat(column.name, " is \"", cell, "\": expected ",
                                  column.least, " to ", column.most));
  }
  if (column.scale == 1 && value != std::floor(value)) {
    return row.Error(absl::StrCat(column.name, " is \"", cell,
                                  "\": expected a whole number"));
  }
  model.*column.field = std::llround(value * column.scale);
  return absl::OkStatus();
}

absl::StatusOr<ModelCosts> ReadModel(const CsvRow& row) {
  ModelCosts model;
  ASSIGN_OR_RETURN(model.name, row.Cell("model"));
  if (model.name.empty()) return row.Error("model is empty");
  ASSIGN_OR_RETURN(const std::string layers, row.Cell("layers"));
  // The head is a layer of every plan.
  if (!absl::SimpleAtoi(layers, &model.layers) || model.layers < 1 ||
      model.layers >= kMaxPlanLayers) {
    return row.Error(absl::StrCat("layers is \"", layers, "\": expected 1 to ",
                                  kMaxPlanLayers - 1));
  }
  for (const Column& column : kColumns) {
    RETURN_IF_ERROR(ReadNumber(row, column, model));
  }
  return model;
}

}  // namespace

void ModelCosts::SetBlocks(std::vector<BlockCosts> of_layers) {
  ROUNDHOUSE_CHECK(layers >= 1 && static_cast<int>(of_layers.size()) == layers);
  const auto mean = [&](int64_t BlockCosts::*field) {
    int64_t sum = 0;
    for (const BlockCosts& block : of_layers) sum += block.*field;
    return (sum + layers / 2) / layers;
  };
  forward_ns = mean(&BlockCosts::forward_ns);
  backward_ns = mean(&BlockCosts::backward_ns);
  layer_bytes = mean(&BlockCosts::bytes);
  layer_gradient_bytes = mean(&BlockCosts::gradient_bytes);
  inner = mean(&BlockCosts::active_inner);
  experts_per_token = 1;
  const bool same = std::all_of(
      of_layers.begin(), of_layers.end(),
      [&](const BlockCosts& block) { return block == of_layers.front(); });
  blocks = same ? std::vector<BlockCosts>() : std::move(of_layers);
}

absl::StatusOr<std::vector<ModelCosts>> ParseModelCosts(
    absl::string_view file, absl::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<CsvRow> rows,
                   ParseCsv(file, text, kMaxModels));
  std::vector<ModelCosts> models;
  for (const CsvRow& row : rows) {
    ASSIGN_OR_RETURN(ModelCosts model, ReadModel(row));
    for (const ModelCosts& other : models) {
      if (other.name == model.name) {
        return row.Error(
            absl::StrCat("model \"", model.name, "\" is there a second time"));
      }
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace roundhouse
