// The job file's `plan`: stages in both directions and how wide they are.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/work_kinds.h"
#include "server/spec/spec_rows.h"

namespace roundhouse {
namespace {

using Json = nlohmann::ordered_json;
using Kind = SpecValue::Kind;

constexpr int kMaxPlanStages = 1000;
// For what the file says that cannot be right.
constexpr size_t kShownBytes = 60;
constexpr size_t kShownGroups = 16;
constexpr IntRange kWidths = {1, 1024};  // as many as gradient_groups

absl::StatusOr<StageRange> ReadRange(const SpecValue& v) {
  constexpr IntRange kLayers = {0, 100000};
  if (v.kind != Kind::kList || v.items.size() != 2) {
    return Expected("a stage as [first layer, last layer]", v);
  }
  ASSIGN_OR_RETURN(const int64_t first, ReadInteger(v.items[0], kLayers));
  ASSIGN_OR_RETURN(const int64_t last, ReadInteger(v.items[1], kLayers));
  if (first > last) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the stage [", first, ", ", last, "] ends before it begins"));
  }
  return StageRange{static_cast<int>(first), static_cast<int>(last)};
}

absl::StatusOr<std::vector<StageRange>> ReadStages(const SpecValue& v) {
  if (v.kind != Kind::kList || v.items.size() > kMaxPlanStages) {
    return Expected(
        absl::StrCat("a list of at most ", kMaxPlanStages, " stages"), v);
  }
  std::vector<StageRange> stages;
  for (const SpecValue& item : v.items) {
    ASSIGN_OR_RETURN(const StageRange range, ReadRange(item));
    stages.push_back(range);
  }
  return stages;
}

absl::StatusOr<StageWidth> ReadWidth(const SpecValue& v) {
  StageWidth width;
  if (v.kind != Kind::kList) {
    ASSIGN_OR_RETURN(width.width, ReadInteger(v, kWidths));
    return width;
  }
  if (v.items.empty() || v.items.size() > static_cast<size_t>(kWidths.high)) {
    return Expected(absl::StrCat("a number of devices, or 1 to ", kWidths.high,
                                 " numbers of groups"),
                    v);
  }
  for (const SpecValue& item : v.items) {
    ASSIGN_OR_RETURN(const int64_t groups, ReadInteger(item, kWidths));
    width.groups.push_back(groups);
  }
  return width;
}

// Per stage, or one number for all of them.
absl::StatusOr<std::vector<StageWidth>> ReadWidths(const SpecValue& v,
                                                   size_t stages) {
  if (v.kind != Kind::kList) {
    ASSIGN_OR_RETURN(const StageWidth width, ReadWidth(v));
    return std::vector<StageWidth>(stages, width);
  }
  if (v.items.size() != stages) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", v.items.size(), " entries for ", stages, " stages"));
  }
  std::vector<StageWidth> widths;
  for (const SpecValue& item : v.items) {
    ASSIGN_OR_RETURN(StageWidth width, ReadWidth(item));
    widths.push_back(std::move(width));
  }
  return widths;
}

// Every layer once in each direction; see ExplicitPlan.
absl::Status CheckPlanShape(const ExplicitPlan& plan) {
  if (plan.backward.empty()) {
    return absl::InvalidArgumentError("backward needs at least one stage");
  }
  for (size_t i = 1; i < plan.backward.size(); ++i) {
    if (plan.backward[i].last != plan.backward[i - 1].first - 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "backward stage ", i, " ends with layer ", plan.backward[i].last,
          ", but ", plan.backward[i - 1].first - 1, " comes next"));
    }
  }
  if (plan.backward.back().first != 0) {
    return absl::InvalidArgumentError("backward does not reach layer 0");
  }
  int next = 0;
  for (size_t i = 0; i < plan.forward.size(); ++i) {
    if (plan.forward[i].first != next) {
      return absl::InvalidArgumentError(
          absl::StrCat("forward stage ", i, " begins with layer ",
                       plan.forward[i].first, ", but ", next, " comes next"));
    }
    next = plan.forward[i].last + 1;
  }
  if (next != plan.backward[0].first) {
    return absl::InvalidArgumentError(
        absl::StrCat("forward ends before layer ", next,
                     ", but the fused stage (the first "
                     "of backward) begins with layer ",
                     plan.backward[0].first));
  }
  return absl::OkStatus();
}

absl::Status Named(const char* name, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(name, ": ", std::string(status.message())));
}

// What a plan's text has: widths can be read once the stages are.
struct PlanDraft {
  const SpecValue* forward = nullptr;
  const SpecValue* backward = nullptr;
  const SpecValue* width = nullptr;
  const SpecValue* forward_width = nullptr;
  const SpecValue* backward_width = nullptr;
};

// The field of that name; null where a plan has no such field.
const SpecValue** FieldOf(const std::string& name, PlanDraft& draft) {
  if (name == "forward") return &draft.forward;
  if (name == "backward") return &draft.backward;
  if (name == "width") return &draft.width;
  if (name == "forward_width") return &draft.forward_width;
  return name == "backward_width" ? &draft.backward_width : nullptr;
}

absl::StatusOr<PlanDraft> FindPlanFields(const SpecValue& v) {
  PlanDraft draft;
  for (const auto& [key, value] : v.entries) {
    const SpecValue** field = FieldOf(key.text, draft);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown field \"", key.text.substr(0, kShownBytes),
                       "\"; it has forward, backward, width, forward_width and "
                       "backward_width"));
    }
    *field = &value;
  }
  if (draft.forward == nullptr || draft.backward == nullptr) {
    return absl::InvalidArgumentError("needs both forward and backward");
  }
  if (draft.width != nullptr &&
      (draft.forward_width != nullptr || draft.backward_width != nullptr)) {
    return absl::InvalidArgumentError(
        "width says it for every stage; give it or forward_width and "
        "backward_width");
  }
  if (draft.width != nullptr && draft.width->kind == Kind::kList) {
    return absl::InvalidArgumentError(
        "width is one number; forward_width and backward_width have an entry "
        "for each stage");
  }
  return draft;
}

absl::Status ReadDirectionWidths(const PlanDraft& draft,
                                 PassDirection direction, ExplicitPlan* plan) {
  const bool forward = direction == PassDirection::kForward;
  const SpecValue* own = forward ? draft.forward_width : draft.backward_width;
  const SpecValue* given = draft.width != nullptr ? draft.width : own;
  const char* name = draft.width != nullptr ? "width"
                     : forward              ? "forward_width"
                                            : "backward_width";
  const size_t stages = forward ? plan->forward.size() : plan->backward.size();
  std::vector<StageWidth>& out =
      forward ? plan->forward_width : plan->backward_width;
  out.resize(stages);
  if (given == nullptr) return absl::OkStatus();
  auto widths = ReadWidths(*given, stages);
  if (!widths.ok()) return Named(name, widths.status());
  out = *std::move(widths);
  return absl::OkStatus();
}

absl::Status SetPlan(const SpecValue& v, SpecDraft* d) {
  if (v.text == "auto") return absl::OkStatus();
  if (v.kind != Kind::kMap) {
    return Expected("auto, or forward and backward stages", v);
  }
  ASSIGN_OR_RETURN(const PlanDraft draft, FindPlanFields(v));
  ExplicitPlan plan;
  ASSIGN_OR_RETURN(plan.forward, ReadStages(*draft.forward));
  ASSIGN_OR_RETURN(plan.backward, ReadStages(*draft.backward));
  RETURN_IF_ERROR(CheckPlanShape(plan));
  RETURN_IF_ERROR(ReadDirectionWidths(draft, PassDirection::kForward, &plan));
  RETURN_IF_ERROR(ReadDirectionWidths(draft, PassDirection::kBackward, &plan));
  const auto usual = [](const StageWidth& width) {
    return width == StageWidth();
  };
  if (std::all_of(plan.forward_width.begin(), plan.forward_width.end(),
                  usual) &&
      std::all_of(plan.backward_width.begin(), plan.backward_width.end(),
                  usual)) {
    plan.forward_width.clear();
    plan.backward_width.clear();
  }
  d->spec.plan = std::move(plan);
  return absl::OkStatus();
}

Json StagesJson(const std::vector<StageRange>& stages) {
  Json out = Json::array();
  for (const StageRange& s : stages) out.push_back({s.first, s.last});
  return out;
}

Json WidthsJson(const std::vector<StageWidth>& widths) {
  Json out = Json::array();
  for (const StageWidth& w : widths) {
    out.push_back(w.groups.empty() ? Json(w.width) : Json(w.groups));
  }
  return out;
}

absl::Status CheckDirection(const char* name,
                            const std::vector<StageWidth>& widths,
                            int64_t gradient_groups) {
  for (size_t i = 0; i < widths.size(); ++i) {
    const StageWidth& width = widths[i];
    if (width.width > gradient_groups) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, "[", i, "] is ", width.width,
          " devices wide, but gradient_groups is ", gradient_groups,
          ": each device runs at least one group"));
    }
    const int64_t sum =
        std::accumulate(width.groups.begin(), width.groups.end(), int64_t{0});
    if (width.groups.empty() || sum == gradient_groups) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, "[", i, "] has ",
        width.groups.size() <= kShownGroups ? absl::StrJoin(width.groups, " + ")
                                            : absl::StrCat(sum),
        " groups, but gradient_groups is ", gradient_groups));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlanWidths(const ExplicitPlan& plan,
                             int64_t gradient_groups) {
  RETURN_IF_ERROR(
      CheckDirection("forward_width", plan.forward_width, gradient_groups));
  return CheckDirection("backward_width", plan.backward_width, gradient_groups);
}

SpecFieldRow PlanRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = SetPlan;
  row.put = [](const JobSpec& s, Json* out) {
    if (!s.plan.has_value()) {
      (*out)["plan"] = "auto";
      return;
    }
    Json plan = {{"forward", StagesJson(s.plan->forward)},
                 {"backward", StagesJson(s.plan->backward)}};
    if (!s.plan->backward_width.empty()) {
      plan["forward_width"] = WidthsJson(s.plan->forward_width);
      plan["backward_width"] = WidthsJson(s.plan->backward_width);
    }
    (*out)["plan"] = std::move(plan);
  };
  return row;
}

}  // namespace roundhouse
