// Makers of vocabulary rows: how a field of some type is read, checked and
// written.  Private to server/spec/spec.
#ifndef ROUNDHOUSE_SERVER_SPEC_SPEC_ROWS_H_
#define ROUNDHOUSE_SERVER_SPEC_SPEC_ROWS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec.h"
#include "server/spec/spec_value.h"

namespace roundhouse {

// A spec while it is being read, with the fields that only stand for others.
struct SpecDraft {
  JobSpec spec;
  std::optional<int64_t> gradient_accumulation_steps;
  bool bf16 = false;
  bool fp16 = false;
};

struct SpecFieldRow {
  SpecField info;
  // Statuses without file, line and field: the caller adds them.
  std::function<absl::Status(const SpecValue&, SpecDraft*)> set;
  // Adds the field to a resolved spec; empty for what a resolved spec leaves
  // out.
  std::function<void(const JobSpec&, nlohmann::ordered_json*)> put;
};

// Both bounds belong to the range.
struct IntRange {
  int64_t low;
  int64_t high;
};

// Bounds that belong to the range or not.
struct NumberRange {
  double low;
  double high;
  bool above_low = false;
  bool below_high = false;
};

template <typename E>
struct Choice {
  const char* text;
  E value;
};

// A value that exists but comes with a later part.
struct Later {
  const char* text;
  const char* part;
};

// kInvalidArgument: "expected `what`, got ...".
absl::Status Expected(const std::string& what, const SpecValue& got);
// kUnimplemented, naming the part that brings it.
// `instead` says what to do.
absl::Status NotYet(const std::string& what, const std::string& part,
                    const std::string& instead);
// "a, b or c".  REQUIRES: not empty.
std::string OneOfThese(const std::vector<std::string>& words);
// Expected one of the words; with the one that may have been meant.
absl::Status ExpectedWord(const std::vector<std::string>& words,
                          const SpecValue& got);

absl::StatusOr<int64_t> ReadInteger(const SpecValue& v, IntRange range);
// kInvalidArgument names the stage: wider than there are groups, groups of its
// devices that do not add up to all.
absl::Status CheckPlanWidths(const ExplicitPlan& plan, int64_t gradient_groups);

SpecFieldRow Integer(int64_t JobSpec::*member, IntRange range, SpecField info);
SpecFieldRow IntegerOrAuto(std::optional<int64_t> JobSpec::*member,
                           IntRange range, SpecField info);
SpecFieldRow Number(double JobSpec::*member, NumberRange range, SpecField info);
// Empty where the file says nothing, and then not written.
SpecFieldRow IntegerOrNone(std::optional<int64_t> JobSpec::*member,
                           IntRange range, SpecField info);
SpecFieldRow NumberOrNone(std::optional<double> JobSpec::*member,
                          NumberRange range, SpecField info);
SpecFieldRow Boolean(bool JobSpec::*member, SpecField info);
SpecFieldRow Path(std::string JobSpec::*member, SpecField info);
// One path, or several, which a resolved spec has in a list.
SpecFieldRow Paths(std::vector<std::string> JobSpec::*member, SpecField info);
// dataset_columns.
SpecFieldRow ColumnsRow(SpecField info);
// A field with one value for now, which is nowhere stored.
SpecFieldRow Only(std::vector<const char*> texts, std::vector<Later> later,
                  SpecField info);
// A field whose every value but `off` comes with info.later.
SpecFieldRow Reserved(std::string off, SpecField info);
SpecFieldRow PlanRow(SpecField info);
SpecFieldRow MetadataRow(SpecField info);
SpecFieldRow OutputNameRow(SpecField info);
// YYYY-MM-DD of the Gregorian calendar.
SpecFieldRow DateRow(std::string JobSpec::*member, SpecField info);
SpecFieldRow TargetModulesRow(SpecField info);
SpecFieldRow EvalPromptsRow(SpecField info);
SpecFieldRow AccumulationRow(SpecField info);
// Also by torch's names; "auto": nothing, and not written.
SpecFieldRow DtypeRow(SpecField info);
// transformers' way of saying a dtype.
SpecFieldRow DtypeFlagRow(bool SpecDraft::*member, SpecField info);
// gradient_checkpointing: true and false of other tools leave it to the
// planner.
SpecFieldRow RecomputationRow(SpecFieldRow row);
// Written only where it is not "auto".
SpecFieldRow SavedInputsRow(SpecField info);
// Written only where it is not 0: of two fields that replace each other.
SpecFieldRow WhenNotZero(SpecFieldRow row);
// Written only where it is not this text.
SpecFieldRow WhenNot(std::string usual, SpecFieldRow row);
// max_steps: -1 is transformers' way of saying "by epochs".
SpecFieldRow StepsRow(SpecFieldRow row);

// Empty where the file says nothing, and then not written.
template <typename E>
SpecFieldRow OneOfOrNone(std::optional<E> JobSpec::*member,
                         std::vector<Choice<E>> choices, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, choices](const SpecValue& v, SpecDraft* d) {
    std::vector<std::string> names;
    for (const Choice<E>& c : choices) {
      names.push_back(c.text);
      if (v.text != c.text) continue;
      d->spec.*member = c.value;
      return absl::OkStatus();
    }
    return ExpectedWord(names, v);
  };
  row.put = [member, choices, name = info.name](const JobSpec& s,
                                                nlohmann::ordered_json* out) {
    for (const Choice<E>& c : choices) {
      if (s.*member == c.value) (*out)[name] = c.text;
    }
  };
  return row;
}

// `member` may be null: nothing is stored, the first choice is written.
template <typename E>
SpecFieldRow OneOf(E JobSpec::*member, std::vector<Choice<E>> choices,
                   std::vector<Later> later, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, choices, later](const SpecValue& v, SpecDraft* d) {
    std::vector<std::string> names;
    for (const Choice<E>& c : choices) {
      names.push_back(c.text);
      if (v.text != c.text) continue;
      if (member != nullptr) d->spec.*member = c.value;
      return absl::OkStatus();
    }
    for (const Later& l : later) {
      if (v.text != l.text) continue;
      return NotYet(l.text, l.part, "say " + OneOfThese(names));
    }
    return ExpectedWord(names, v);
  };
  row.put = [member, choices, name = info.name](const JobSpec& s,
                                                nlohmann::ordered_json* out) {
    for (const Choice<E>& c : choices) {
      if (member != nullptr && s.*member != c.value) continue;
      (*out)[name] = c.text;
      return;
    }
  };
  return row;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_SPEC_ROWS_H_
