// The command-line flags of a program, or of one command, and their help text.
//
//   FlagSet flags;
//   flags.AddString("file", 'f', "FILE", &file, "the job file");
//   ASSIGN_OR_RETURN(std::vector<std::string> rest, flags.Parse(args));
//
// --name=value, --name value, -n value, -nvalue; -ab is -a -b where -a takes no
// value; "--" ends the flags; flags and other arguments may be mixed.  CLI11
// takes the words apart; flags.cc alone includes it and catches what it throws.
//
// A set owns its flags' texts and borrows their targets.  Thread-compatible.
#ifndef ROUNDHOUSE_BASE_FLAGS_H_
#define ROUNDHOUSE_BASE_FLAGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

class FlagSet {
 public:
  enum class Order {
    kMixed,
    // The first argument that is no flag and all after it are left alone.
    kFlagsFirst,
  };

  // `letter` 0: no short form.  Targets are borrowed and keep their value, the
  // default, unless the flag is given.  Given again, the last value counts.
  void AddBool(const std::string& name, char letter, bool* target,
               const std::string& help);
  void AddString(const std::string& name, char letter,
                 const std::string& value_name, std::string* target,
                 const std::string& help);
  // May be given again: each value goes behind those before.
  void AddStrings(const std::string& name, char letter,
                  const std::string& value_name,
                  std::vector<std::string>* target, const std::string& help);
  // A decimal number from `lowest` on.
  void AddInt(const std::string& name, char letter,
              const std::string& value_name, int64_t lowest, int64_t* target,
              const std::string& help);
  // At most once, and each "-" of its name may be written "_".
  void AddOnce(const std::string& name, const std::string& value_name,
               std::optional<std::string>* target, const std::string& help);

  // Whether --name was added.
  bool Has(const std::string& name) const;

  // What is no flag.  kInvalidArgument names the flag as it was given: unknown
  // (with the one that may be meant), no value, a value too many, not a number,
  // given twice.  Targets may have changed by then.
  absl::StatusOr<std::vector<std::string>> Parse(
      const std::vector<std::string>& args, Order order = Order::kMixed) const;

  // Each flag in the order they were added, in lines of at most 80 columns.
  std::string Help() const;

 private:
  using Values = std::vector<std::string>;
  struct Flag {
    std::string name;
    char letter = 0;
    std::string value_name;  // "": takes no value
    std::string help;
    // Every way to write it on a command line: "-f", "--file".
    std::vector<std::string> spellings;
    // Sets the target; returns what is wrong, to stand behind "flag --name".
    std::function<std::string(const Values& values)> take;
  };

  // What CLI11 makes of the words.
  struct Recognised {
    std::vector<Values> values;  // of each flag, in the order of flags_
    Values rest;                 // with "--" and unknown flags
  };

  void Add(Flag flag);
  absl::StatusOr<Recognised> Recognise(const std::vector<std::string>& args,
                                       Order order) const;
  // `values` are the flag's among `args`.
  absl::Status Take(const Flag& flag, Values values,
                    const std::vector<std::string>& args) const;
  // Refusals: of a flag nobody added, and of `args` that end too early.
  absl::Status Unknown(const std::string& word,
                       const std::vector<std::string>& args) const;
  absl::Status NeedsValue(const std::vector<std::string>& args) const;
  // "; did you mean --wait?", or "".
  std::string Suggestion(const std::string& name) const;

  std::vector<Flag> flags_;
};

// "8GiB" in quotes on one line, as a message may show it; of a long one only
// the beginning.
std::string QuotedValue(const std::string& value);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FLAGS_H_
