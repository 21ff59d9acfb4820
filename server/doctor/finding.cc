#include "server/doctor/finding.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

constexpr size_t kVerdictColumns = 9;
constexpr size_t kNameColumns = 17;

std::string Padded(const std::string& text, size_t columns) {
  return text.size() < columns ? text + std::string(columns - text.size(), ' ')
                               : text + " ";
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  return verdict == Verdict::kOk        ? "ok"
         : verdict == Verdict::kWarning ? "warning"
                                        : "problem";
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text,
                    Padded(VerdictName(finding.verdict), kVerdictColumns),
                    Padded(VisibleLine(finding.name), kNameColumns),
                    VisibleLine(finding.found), "\n");
    if (finding.remedy.empty()) continue;
    absl::StrAppend(&text, std::string(kVerdictColumns + kNameColumns, ' '),
                    "-> ", VisibleLine(finding.remedy), "\n");
  }
  return text;
}

bool HasProblem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& one) {
    return one.verdict == Verdict::kProblem;
  });
}

}  // namespace roundhouse
