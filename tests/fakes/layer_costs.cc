#include "tests/fakes/layer_costs.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace roundhouse::fakes {
namespace {

constexpr absl::string_view kHeader =
    "layer,forward_ms,recompute_ms,backward_ms";

// Parses one line; `where` names file and line.
class LineParser {
 public:
  LineParser(absl::string_view line, std::string where, double scale)
      : cells_(absl::StrSplit(line, ',')),
        where_(std::move(where)),
        scale_(scale) {}

  absl::StatusOr<LayerCost> Parse(size_t layer) const {
    if (cells_.size() != 4) {
      return Bad(absl::StrCat("4 fields wanted, ", cells_.size(), " found"));
    }
    if (cells_[0] != absl::StrCat(layer)) {
      return Bad(
          absl::StrCat("layer: ", layer, " wanted, \"", cells_[0], "\" found"));
    }
    LayerCost cost;
    ASSIGN_OR_RETURN(cost.forward_ns, Nanoseconds(1, "forward_ms"));
    ASSIGN_OR_RETURN(cost.recompute_ns, Nanoseconds(2, "recompute_ms"));
    ASSIGN_OR_RETURN(cost.backward_ns, Nanoseconds(3, "backward_ms"));
    return cost;
  }

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", what));
  }

  absl::StatusOr<int64_t> Nanoseconds(size_t cell, const char* name) const {
    double ms = 0;
    if (!absl::SimpleAtod(cells_[cell], &ms) || !(ms >= 0) ||
        ms * scale_ > kMaxLayerMs) {
      return Bad(absl::StrCat(name, ": milliseconds from 0 to ", kMaxLayerMs,
                              " after scaling wanted, \"", cells_[cell],
                              "\" found"));
    }
    return std::llround(ms * scale_ * 1e6);
  }

  const std::vector<std::string> cells_;
  const std::string where_;
  const double scale_;
};

}  // namespace

absl::StatusOr<std::vector<LayerCost>> ParseLayerCosts(const std::string& text,
                                                       const std::string& path,
                                                       double scale) {
  std::vector<LayerCost> costs;
  bool header = false;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    const std::string where = absl::StrCat(path, ":", number);
    if (!header && line != kHeader) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": the header ", kHeader, " wanted, \"", line, "\" found"));
    }
    if (!header) {
      header = true;
      continue;
    }
    ASSIGN_OR_RETURN(const LayerCost cost,
                     LineParser(line, where, scale).Parse(costs.size()));
    costs.push_back(cost);
  }
  if (costs.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a decoder layer and the head wanted at least, ",
                     costs.size(), " layers found"));
  }
  if (costs.back().recompute_ns != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number,
                     ": recompute_ms: 0 wanted, the head is never recomputed"));
  }
  return costs;
}

absl::StatusOr<std::vector<LayerCost>> ReadLayerCosts(const std::string& path,
                                                      double scale) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.good()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return ParseLayerCosts(text.str(), path, scale);
}

}  // namespace roundhouse::fakes
