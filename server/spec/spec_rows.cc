#include "server/spec/spec_rows.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/upload_names.h"

namespace roundhouse {
namespace {

using Json = nlohmann::ordered_json;
using Kind = SpecValue::Kind;

constexpr size_t kMaxPathBytes = 4096;
// As of server/spec/data_files, which counts what folders and patterns mean.
constexpr size_t kMaxPaths = 128;
constexpr size_t kMaxMetadataPairs = 16;
constexpr size_t kMaxMetadataKeyBytes = 64;
constexpr size_t kMaxMetadataValueBytes = 512;

bool Inside(double x, NumberRange r) {
  return (r.above_low ? x > r.low : x >= r.low) &&
         (r.below_high ? x < r.high : x <= r.high);
}

absl::StatusOr<double> ReadNumber(const SpecValue& v, NumberRange range) {
  double number = 0;
  const bool is_number = v.kind == Kind::kInteger || v.kind == Kind::kNumber;
  if (!is_number || !absl::SimpleAtod(v.text, &number) ||
      !Inside(number, range)) {
    if (v.kind == Kind::kString && absl::SimpleAtod(v.text, &number) &&
        absl::ascii_isdigit(v.text.back())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected a number, got ", Describe(v), "; write it without quotes"));
    }
    return Expected(
        absl::StrCat("a number ", range.above_low ? "above " : "from ",
                     range.low, range.below_high ? " to below " : " to ",
                     range.high),
        v);
  }
  return number;
}

// As YAML 1.2 and 1.1 have it, whose readers other tools use.
absl::StatusOr<bool> ReadBoolean(const SpecValue& v) {
  const std::string text = absl::AsciiStrToLower(v.text);
  if (v.kind == Kind::kBool) return text == "true";
  const bool word = v.kind == Kind::kString;
  if (word && (text == "yes" || text == "on")) return true;
  if (word && (text == "no" || text == "off")) return false;
  return Expected("true or false", v);
}

// "q_proj,v_proj" as the list that it is.
SpecValue SplitText(const SpecValue& v) {
  if (v.kind != Kind::kString) return v;
  SpecValue list{.kind = Kind::kList, .line = v.line};
  for (absl::string_view part : absl::StrSplit(v.text, ',')) {
    list.items.push_back(
        {.kind = Kind::kString,
         .line = v.line,
         .text = std::string(absl::StripAsciiWhitespace(part))});
  }
  return list;
}

absl::StatusOr<uint32_t> ReadTargetModules(const SpecValue& written) {
  if (written.text == "all-linear" || written.text == "all") {
    return kAllLinear;
  }
  const SpecValue v = SplitText(written);
  const std::string what =
      absl::StrCat("all-linear, or a list of ",
                   absl::StrJoin(TargetModuleNames(kAllLinearTargets), ", "));
  if (v.kind != Kind::kList || v.items.empty()) return Expected(what, v);
  uint32_t targets = 0;
  for (const SpecValue& item : v.items) {
    const uint32_t bit = TargetModuleBit(item.text);
    if (bit == 0) return Expected(what, item);
    targets |= bit;
  }
  return targets;
}

absl::Status SetEvalPrompts(const SpecValue& v, SpecDraft* d) {
  if (v.kind != Kind::kList || v.items.empty() ||
      v.items.size() > kMaxEvalPrompts) {
    const std::string got =
        v.kind == Kind::kList ? absl::StrCat(v.items.size()) : Describe(v);
    return absl::InvalidArgumentError(absl::StrCat(
        "expected a list of 1 to ", kMaxEvalPrompts, " texts, got ", got));
  }
  for (size_t i = 0; i < v.items.size(); ++i) {
    const SpecValue& item = v.items[i];
    if (item.kind != Kind::kString || item.text.empty() ||
        item.text.size() > kMaxEvalPromptBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("[", i, "]: expected a text of 1 to ",
                       kMaxEvalPromptBytes, " bytes, got ",
                       item.text.size() > kMaxEvalPromptBytes
                           ? absl::StrCat(item.text.size(), " bytes")
                           : Describe(item)));
    }
    d->spec.eval_prompts.push_back(item.text);
  }
  return absl::OkStatus();
}

bool IsPath(const SpecValue& v) {
  return v.kind != Kind::kList && v.kind != Kind::kMap && !v.text.empty() &&
         v.text.size() <= kMaxPathBytes;
}

absl::StatusOr<std::vector<std::string>> ReadPaths(const SpecValue& v) {
  std::vector<std::string> paths;
  const std::vector<SpecValue> one = {v};
  const std::vector<SpecValue>& items = v.kind == Kind::kList ? v.items : one;
  if (items.empty() || items.size() > kMaxPaths) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a path, or a list of 1 to ", kMaxPaths,
                     " paths, got ", items.size()));
  }
  for (const SpecValue& item : items) {
    if (!IsPath(item)) {
      return Expected(absl::StrCat("a path of 1 to ", kMaxPathBytes,
                                   " bytes, or a list of paths"),
                      item);
    }
    paths.push_back(item.text);
  }
  return paths;
}

absl::Status SetColumns(const SpecValue& v, SpecDraft* d) {
  if (v.kind != Kind::kMap) {
    return Expected("a mapping of a format's fields to columns of the data", v);
  }
  for (const auto& [key, value] : v.entries) {
    const std::vector<std::string>& known = DatasetColumnNames();
    if (std::find(known.begin(), known.end(), key.text) == known.end()) {
      return ExpectedWord(known, key);
    }
    if (value.kind == Kind::kList || value.kind == Kind::kMap ||
        value.text.empty() || value.text.size() > kMaxColumnBytes) {
      return Expected(absl::StrCat("a column's name of 1 to ", kMaxColumnBytes,
                                   " bytes under \"", key.text, "\""),
                      value);
    }
    d->spec.dataset_columns.emplace_back(key.text, value.text);
  }
  return absl::OkStatus();
}

absl::Status SetMetadata(const SpecValue& v, SpecDraft* d) {
  if (v.kind != Kind::kMap || v.entries.size() > kMaxMetadataPairs) {
    return Expected(absl::StrCat("a mapping of at most ", kMaxMetadataPairs,
                                 " names to texts"),
                    v);
  }
  for (const auto& [key, value] : v.entries) {
    if (key.text.size() > kMaxMetadataKeyBytes) {
      return Expected(
          absl::StrCat("names of at most ", kMaxMetadataKeyBytes, " bytes"),
          key);
    }
    if (value.kind == Kind::kList || value.kind == Kind::kMap ||
        value.text.size() > kMaxMetadataValueBytes) {
      return Expected(absl::StrCat("texts of at most ", kMaxMetadataValueBytes,
                                   " bytes under \"", key.text, "\""),
                      value);
    }
    d->spec.metadata.emplace_back(key.text, value.text);
  }
  return absl::OkStatus();
}

absl::Status SetOutputName(const SpecValue& v, SpecDraft* d) {
  const bool plain = std::all_of(v.text.begin(), v.text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
  if (!plain || v.text.empty() || v.text.size() > kMaxOutputNameBytes ||
      v.text[0] == '.') {
    return Expected(absl::StrCat("1 to ", kMaxOutputNameBytes,
                                 " of letters, digits, '.', '_', '-', not "
                                 "beginning with '.'"),
                    v);
  }
  d->spec.output_name = v.text;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadInteger(const SpecValue& v, IntRange range) {
  int64_t number = 0;
  if (v.kind != Kind::kInteger || !absl::SimpleAtoi(v.text, &number) ||
      number < range.low || number > range.high) {
    return Expected(
        absl::StrCat("an integer from ", range.low, " to ", range.high), v);
  }
  return number;
}

SpecFieldRow Integer(int64_t JobSpec::*member, IntRange range, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, range](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadInteger(v, range));
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    (*out)[name] = s.*member;
  };
  return row;
}

SpecFieldRow IntegerOrAuto(std::optional<int64_t> JobSpec::*member,
                           IntRange range, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, range](const SpecValue& v, SpecDraft* d) -> absl::Status {
    if (v.text == "auto") {
      d->spec.*member = std::nullopt;
      return absl::OkStatus();
    }
    const auto number = ReadInteger(v, range);
    if (!number.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(number.status().message()), " (or auto)"));
    }
    d->spec.*member = *number;
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    if ((s.*member).has_value()) (*out)[name] = *(s.*member);
  };
  return row;
}

SpecFieldRow Number(double JobSpec::*member, NumberRange range,
                    SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, range](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadNumber(v, range));
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    (*out)[name] = s.*member;
  };
  return row;
}

SpecFieldRow IntegerOrNone(std::optional<int64_t> JobSpec::*member,
                           IntRange range, SpecField info) {
  SpecFieldRow row = IntegerOrAuto(member, range, std::move(info));
  row.set = [member, range](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadInteger(v, range));
    return absl::OkStatus();
  };
  return row;
}

SpecFieldRow NumberOrNone(std::optional<double> JobSpec::*member,
                          NumberRange range, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member, range](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadNumber(v, range));
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    if ((s.*member).has_value()) (*out)[name] = *(s.*member);
  };
  return row;
}

SpecFieldRow Boolean(bool JobSpec::*member, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadBoolean(v));
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    (*out)[name] = s.*member;
  };
  return row;
}

SpecFieldRow Path(std::string JobSpec::*member, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member](const SpecValue& v, SpecDraft* d) {
    if (!IsPath(v)) {
      return Expected(absl::StrCat("a path of 1 to ", kMaxPathBytes, " bytes"),
                      v);
    }
    d->spec.*member = v.text;
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    if (!(s.*member).empty()) (*out)[name] = s.*member;
  };
  return row;
}

SpecFieldRow Paths(std::vector<std::string> JobSpec::*member, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [member](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.*member, ReadPaths(v));
    return absl::OkStatus();
  };
  row.put = [member, name = info.name](const JobSpec& s, Json* out) {
    const std::vector<std::string>& paths = s.*member;
    if (paths.size() == 1) (*out)[name] = paths[0];
    if (paths.size() > 1) (*out)[name] = paths;
  };
  return row;
}

SpecFieldRow ColumnsRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = SetColumns;
  row.put = [](const JobSpec& s, Json* out) {
    for (const auto& [ours, theirs] : s.dataset_columns) {
      (*out)["dataset_columns"][ours] = theirs;
    }
  };
  return row;
}

SpecFieldRow Only(std::vector<const char*> texts, std::vector<Later> later,
                  SpecField info) {
  std::vector<Choice<ModelInit>> choices;
  for (const char* t : texts) choices.push_back({t, ModelInit::kPretrained});
  return OneOf<ModelInit>(nullptr, choices, std::move(later), info);
}

SpecFieldRow Reserved(std::string off, SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [off, info](const SpecValue& v, SpecDraft*) {
    if (!off.empty() && v.text == off) return absl::OkStatus();
    return NotYet("this", info.later, "remove this line");
  };
  return row;
}

SpecFieldRow MetadataRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = SetMetadata;
  row.put = [](const JobSpec& s, Json* out) {
    Json pairs = Json::object();
    for (const auto& [key, value] : s.metadata) pairs[key] = value;
    (*out)["metadata"] = std::move(pairs);
  };
  return row;
}

SpecFieldRow OutputNameRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = SetOutputName;
  row.put = [](const JobSpec& s, Json* out) {
    if (!s.output_name.empty()) (*out)["output_name"] = s.output_name;
  };
  return row;
}

SpecFieldRow DateRow(std::string JobSpec::*member, SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = [member](const SpecValue& v, SpecDraft* d) {
    if (!IsTemplateDate(v.text)) return Expected("a date as YYYY-MM-DD", v);
    d->spec.*member = v.text;
    return absl::OkStatus();
  };
  row.put = [member, name = row.info.name](const JobSpec& s, Json* out) {
    if (!(s.*member).empty()) (*out)[name] = s.*member;
  };
  return row;
}

SpecFieldRow TargetModulesRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = [](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->spec.target_modules, ReadTargetModules(v));
    return absl::OkStatus();
  };
  row.put = [](const JobSpec& s, Json* out) {
    if (!s.target_modules.has_value()) return;
    if (*s.target_modules == kAllLinear) {
      (*out)["target_modules"] = "all-linear";
    } else {
      (*out)["target_modules"] = TargetModuleNames(*s.target_modules);
    }
  };
  return row;
}

SpecFieldRow EvalPromptsRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = SetEvalPrompts;
  row.put = [](const JobSpec& s, Json* out) {
    if (!s.eval_prompts.empty()) (*out)["eval_prompts"] = s.eval_prompts;
  };
  return row;
}

SpecFieldRow AccumulationRow(SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = [](const SpecValue& v, SpecDraft* d) -> absl::Status {
    ASSIGN_OR_RETURN(d->gradient_accumulation_steps,
                     ReadInteger(v, {1, 1000000}));
    return absl::OkStatus();
  };
  return row;
}

SpecFieldRow DtypeRow(SpecField info) {
  SpecFieldRow row = OneOfOrNone<DType>(
      &JobSpec::dtype,
      {{"fp32", DType::kF32}, {"bf16", DType::kBF16}, {"fp16", DType::kF16}},
      std::move(info));
  row.set = [set = row.set](const SpecValue& v, SpecDraft* d) -> absl::Status {
    if (v.text == "auto") return absl::OkStatus();
    SpecValue ours = v;
    if (v.text == "float32") ours.text = "fp32";
    if (v.text == "bfloat16") ours.text = "bf16";
    if (v.text == "float16") ours.text = "fp16";
    if (set(ours, d).ok()) return absl::OkStatus();
    return Expected("auto, fp32, bf16 or fp16", v);
  };
  return row;
}

SpecFieldRow DtypeFlagRow(bool SpecDraft::*member, SpecField info) {
  SpecFieldRow row{.info = std::move(info)};
  row.set = [member](const SpecValue& v, SpecDraft* d) -> absl::Status {
    // axolotl's "if the device has it" and "weights too", which is so here.
    if (v.text == "auto" || v.text == "full") {
      d->*member = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(d->*member, ReadBoolean(v));
    return absl::OkStatus();
  };
  return row;
}

SpecFieldRow RecomputationRow(SpecFieldRow row) {
  row.set = [set = row.set](const SpecValue& v, SpecDraft* d) {
    if (v.kind == Kind::kBool) return absl::OkStatus();
    return set(v, d);
  };
  return row;
}

SpecFieldRow SavedInputsRow(SpecField info) {
  SpecFieldRow row{.info = info};
  row.set = [](const SpecValue& v, SpecDraft* d) {
    const std::optional<int> every = FindSavedInputs(v.text);
    if (!every.has_value()) return Expected(kSavedInputsWords, v);
    d->spec.saved_inputs = *every;
    return absl::OkStatus();
  };
  row.put = [name = info.name](const JobSpec& s, Json* out) {
    if (s.saved_inputs != 0) (*out)[name] = SavedInputsText(s.saved_inputs);
  };
  return row;
}

SpecFieldRow WhenNotZero(SpecFieldRow row) {
  row.put = [put = row.put, name = row.info.name](const JobSpec& s, Json* out) {
    Json one;
    put(s, &one);
    if (one[name] != 0) (*out)[name] = one[name];
  };
  return row;
}

SpecFieldRow WhenNot(std::string usual, SpecFieldRow row) {
  row.put = [put = row.put, usual, name = row.info.name](const JobSpec& s,
                                                         Json* out) {
    Json one;
    put(s, &one);
    if (one[name] != usual) (*out)[name] = one[name];
  };
  return row;
}

SpecFieldRow StepsRow(SpecFieldRow row) {
  row.set = [set = row.set](const SpecValue& v, SpecDraft* d) {
    if (v.text == "-1") return absl::OkStatus();
    return set(v, d);
  };
  return row;
}

}  // namespace roundhouse
