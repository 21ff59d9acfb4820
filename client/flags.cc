#include "client/flags.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "base/text_width.h"

namespace roundhouse::client {
namespace {

constexpr size_t kHelpColumns = 80;

}  // namespace

void FlagSet::AddBool(const std::string& name, char letter, bool* target,
                      const std::string& help) {
  Flag flag{name, letter, "", help};
  flag.bool_target = target;
  flags_.push_back(flag);
}

void FlagSet::AddString(const std::string& name, char letter,
                        const std::string& value_name, std::string* target,
                        const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.string_target = target;
  flags_.push_back(flag);
}

void FlagSet::AddStrings(const std::string& name, char letter,
                         const std::string& value_name,
                         std::vector<std::string>* target,
                         const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.strings_target = target;
  flags_.push_back(flag);
}

void FlagSet::AddInt(const std::string& name, char letter,
                     const std::string& value_name, int64_t lowest,
                     int64_t* target, const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.int_target = target;
  flag.lowest = lowest;
  flags_.push_back(flag);
}

bool FlagSet::Has(const std::string& name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.name == name; });
}

std::string FlagSet::Suggestion(const std::string& name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?");
}

absl::StatusOr<FlagSet::Given> FlagSet::TakeApart(
    const std::string& arg) const {
  Given given;
  const bool is_long = arg.compare(0, 2, "--") == 0;
  const size_t equals = is_long ? arg.find('=') : std::string::npos;
  given.shown = is_long ? arg.substr(0, equals) : arg.substr(0, 2);
  const auto flag =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& candidate) {
        return is_long ? given.shown == "--" + candidate.name
                       : candidate.letter == arg[1];
      });
  if (flag == flags_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag ", given.shown,
                     is_long ? Suggestion(given.shown.substr(2)) : ""));
  }
  given.flag = &*flag;
  if (is_long) {
    given.has_value = equals != std::string::npos;
    given.value = given.has_value ? arg.substr(equals + 1) : "";
  } else {
    given.has_value = arg.size() > 2;
    given.value = arg.substr(2);
  }
  return given;
}

absl::Status FlagSet::Set(const Given& given) {
  const Flag& flag = *given.flag;
  if (flag.bool_target != nullptr) {
    *flag.bool_target = true;
    return absl::OkStatus();
  }
  if (flag.string_target != nullptr) {
    *flag.string_target = given.value;
    return absl::OkStatus();
  }
  if (flag.strings_target != nullptr) {
    flag.strings_target->push_back(given.value);
    return absl::OkStatus();
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(given.value, &number) || number < flag.lowest) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag ", given.shown, ": \"", given.value,
                     "\" is not a number from ", flag.lowest, " on"));
  }
  *flag.int_target = number;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(
    const std::vector<std::string>& args, Order order) const {
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {
      rest.insert(rest.end(), args.begin() + i + 1, args.end());
      break;
    }
    if (args[i].size() < 2 || args[i][0] != '-') {
      if (order == Order::kFlagsFirst) {
        rest.insert(rest.end(), args.begin() + i, args.end());
        break;
      }
      rest.push_back(args[i]);
      continue;
    }
    ASSIGN_OR_RETURN(Given given, TakeApart(args[i]));
    const bool takes_value = given.flag->bool_target == nullptr;
    if (!takes_value && given.has_value) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag ", given.shown, " takes no value"));
    }
    if (takes_value && !given.has_value) {
      if (i + 1 == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "flag ", given.shown, " needs a value, ", given.flag->value_name));
      }
      given.value = args[++i];
    }
    RETURN_IF_ERROR(Set(given));
  }
  return rest;
}

std::string FlagSet::Help() const {
  std::vector<std::string> lefts;
  size_t width = 0;
  for (const Flag& flag : flags_) {
    std::string left =
        flag.letter == 0 ? "    "
                         : absl::StrCat("-", std::string(1, flag.letter), ", ");
    absl::StrAppend(&left, "--", flag.name);
    if (!flag.value_name.empty()) {
      absl::StrAppend(&left, "=", flag.value_name);
    }
    width = std::max(width, left.size());
    lefts.push_back(left);
  }
  std::string text;
  for (size_t i = 0; i < flags_.size(); ++i) {
    std::string left = absl::StrCat(
        "  ", lefts[i], std::string(width - lefts[i].size() + 2, ' '));
    for (const std::string& line :
         WrapText(flags_[i].help, kHelpColumns - left.size())) {
      absl::StrAppend(&text, left, line, "\n");
      left.assign(left.size(), ' ');
    }
  }
  return text;
}

}  // namespace roundhouse::client
