#include "base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "base/text_width.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

constexpr size_t kHelpColumns = 80;
// So much of a value or a name stands in a message.
constexpr size_t kShownColumns = 100;

// CLI11 sees this character, which no argument of a process holds, at the end
// of what stands behind "--name=".  To it "--name=" would else be a flag whose
// value is the next word, and "--name={}" one without a value.
constexpr char kEndOfValue = '\0';

bool IsLong(const std::string& word) { return absl::StartsWith(word, "--"); }

// "--name" of "--name=value".
std::string BeforeEquals(const std::string& word) {
  return word.substr(0, word.find('='));
}

std::string WithoutEnd(std::string word) {
  if (!word.empty() && word.back() == kEndOfValue) word.pop_back();
  return word;
}

// As CLI11 takes them: the first comes last.
std::vector<std::string> Reversed(const std::vector<std::string>& args) {
  std::vector<std::string> words(args.rbegin(), args.rend());
  for (std::string& word : words) {
    if (IsLong(word) && absl::StrContains(word, '=')) {
      word.push_back(kEndOfValue);
    }
  }
  return words;
}

// "--a-b", "--a_b".
std::vector<std::string> WithUnderscores(const std::string& name) {
  std::vector<std::string> spellings = {"--"};
  for (const char c : name) {
    const size_t before = spellings.size();
    for (size_t i = 0; i < before; ++i) {
      if (c == '-') spellings.push_back(spellings[i] + '_');
      spellings[i] += c;
    }
  }
  return spellings;
}

std::string Printable(const std::string& text) {
  std::string line = VisibleLine(text);
  if (TextWidth(line) <= kShownColumns) return line;
  return absl::StrCat(FitWidth(line, kShownColumns), "...");
}

}  // namespace

std::string QuotedValue(const std::string& value) {
  return absl::StrCat("\"", Printable(value), "\"");
}

void FlagSet::Add(Flag flag) {
  if (flag.spellings.empty()) flag.spellings = {"--" + flag.name};
  if (flag.letter != 0) flag.spellings.push_back({'-', flag.letter});
  flags_.push_back(std::move(flag));
}

void FlagSet::AddBool(const std::string& name, char letter, bool* target,
                      const std::string& help) {
  Flag flag{.name = name, .letter = letter, .help = help};
  flag.take = [target](const Values& values) {
    for (const std::string& value : values) {
      if (!value.empty()) return " takes no value";
    }
    *target = true;
    return "";
  };
  Add(std::move(flag));
}

void FlagSet::AddString(const std::string& name, char letter,
                        const std::string& value_name, std::string* target,
                        const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.take = [target](const Values& values) {
    *target = values.back();
    return "";
  };
  Add(std::move(flag));
}

void FlagSet::AddStrings(const std::string& name, char letter,
                         const std::string& value_name,
                         std::vector<std::string>* target,
                         const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.take = [target](const Values& values) {
    target->insert(target->end(), values.begin(), values.end());
    return "";
  };
  Add(std::move(flag));
}

void FlagSet::AddInt(const std::string& name, char letter,
                     const std::string& value_name, int64_t lowest,
                     int64_t* target, const std::string& help) {
  Flag flag{name, letter, value_name, help};
  flag.take = [target, lowest](const Values& values) -> std::string {
    for (const std::string& value : values) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(value, &number) || number < lowest) {
        return absl::StrCat(": ", QuotedValue(value), " is not a number from ",
                            lowest, " on");
      }
      *target = number;
    }
    return "";
  };
  Add(std::move(flag));
}

void FlagSet::AddOnce(const std::string& name, const std::string& value_name,
                      std::optional<std::string>* target,
                      const std::string& help) {
  Flag flag{.name = name, .value_name = value_name, .help = help};
  flag.spellings = WithUnderscores(name);
  flag.take = [target](const Values& values) {
    *target = values.front();
    return values.size() > 1 ? " is given twice; keep one of them" : "";
  };
  Add(std::move(flag));
}

bool FlagSet::Has(const std::string& name) const {
  return absl::c_any_of(flags_,
                        [&](const Flag& flag) { return flag.name == name; });
}

std::string FlagSet::Suggestion(const std::string& name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = Has(name) ? name : NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?");
}

absl::Status FlagSet::Take(const Flag& flag, Values values,
                           const std::vector<std::string>& args) const {
  if (!flag.value_name.empty()) {
    for (std::string& value : values) value = WithoutEnd(std::move(value));
  }
  const std::string wrong = flag.take(values);
  if (wrong.empty()) return absl::OkStatus();
  // CLI11 doesn't say by which of its names a flag was given.
  const auto given = absl::c_find_if(flag.spellings, [&](const auto& spelling) {
    return absl::c_any_of(args, [&](const std::string& word) {
      return IsLong(spelling) ? BeforeEquals(word) == spelling
                              : absl::StartsWith(word, spelling);
    });
  });
  return absl::InvalidArgumentError(absl::StrCat(
      "flag ", given == flag.spellings.end() ? "--" + flag.name : *given,
      wrong));
}

absl::Status FlagSet::Unknown(const std::string& word,
                              const std::vector<std::string>& args) const {
  if (IsLong(word)) {
    const std::string name = BeforeEquals(word);
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown flag ", Printable(name), Suggestion(name.substr(2))));
  }
  // CLI11 has taken the letters before it away, as the "h" of "-help".
  std::string text =
      absl::StrCat("unknown flag ", Printable(word.substr(0, 2)));
  for (const std::string& arg : args) {
    const std::string name = BeforeEquals(arg);
    if (name.size() <= 2 || name[0] != '-' || IsLong(name) ||
        !absl::EndsWith(arg, word.substr(1))) {
      continue;
    }
    absl::StrAppend(&text, " in ", Printable(name), Suggestion(name.substr(1)));
    break;
  }
  return absl::InvalidArgumentError(text);
}

absl::Status FlagSet::NeedsValue(const std::vector<std::string>& args) const {
  // It is the last word, or that word's last letter.
  const std::string& word = args.back();
  const std::string spelling =
      IsLong(word) ? word : absl::StrCat("-", word.substr(word.size() - 1));
  for (const Flag& flag : flags_) {
    if (!absl::c_linear_search(flag.spellings, spelling)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("flag ", spelling, " needs a value, ", flag.value_name));
  }
  return absl::InternalError(
      absl::StrCat("flag ", Printable(word), " needs a value"));
}

absl::StatusOr<FlagSet::Recognised> FlagSet::Recognise(
    const std::vector<std::string>& args, Order order) const {
  try {
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    app.prefix_command(order == Order::kFlagsFirst);
    std::vector<const CLI::Option*> options;
    for (const Flag& flag : flags_) {
      options.push_back(app.add_option(absl::StrJoin(flag.spellings, ","))
                            ->type_size(flag.value_name.empty() ? 0 : 1)
                            ->take_all());
    }
    std::vector<std::string> words = Reversed(args);
    app.parse(words);
    Recognised recognised;
    for (const CLI::Option* option : options) {
      recognised.values.push_back(option->results());
    }
    recognised.rest = app.remaining();
    return recognised;
  } catch (const CLI::ArgumentMismatch&) {
    return NeedsValue(args);
  } catch (const std::exception& thrown) {
    return absl::InternalError(
        absl::StrCat("the flags can't be read: ", thrown.what()));
  }
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(
    const std::vector<std::string>& args, Order order) const {
  ASSIGN_OR_RETURN(Recognised recognised, Recognise(args, order));
  std::vector<std::string> rest;
  bool flags_ended = false;
  for (std::string& word : recognised.rest) {
    if (!flags_ended && word == "--") {
      flags_ended = true;
      continue;
    }
    if (!flags_ended && word.size() > 1 && word[0] == '-') {
      return Unknown(WithoutEnd(word), args);
    }
    if (order == Order::kFlagsFirst) flags_ended = true;
    rest.push_back(WithoutEnd(std::move(word)));
  }
  for (size_t i = 0; i < flags_.size(); ++i) {
    if (recognised.values[i].empty()) continue;
    RETURN_IF_ERROR(Take(flags_[i], std::move(recognised.values[i]), args));
  }
  return rest;
}

std::string FlagSet::Help() const {
  const bool letters =
      absl::c_any_of(flags_, [](const Flag& flag) { return flag.letter != 0; });
  std::vector<std::string> lefts;
  size_t width = 0;
  for (const Flag& flag : flags_) {
    std::string left = letters ? "    " : "";
    if (flag.letter != 0) left = absl::StrCat(flag.spellings.back(), ", ");
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

}  // namespace roundhouse
