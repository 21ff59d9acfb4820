// Command-line flags of one command, and its help text.
//
//   FlagSet flags;
//   flags.AddString("file", 'f', "FILE", &file, "the job file");
//   ASSIGN_OR_RETURN(std::vector<std::string> rest, flags.Parse(args));
//
// --name=value, --name value, -n value, -nvalue; "--" ends the flags; flags
// and other arguments may be mixed.  Thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_FLAGS_H_
#define ROUNDHOUSE_CLIENT_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse::client {

class FlagSet {
 public:
  enum class Order {
    kMixed,
    // The first argument that is no flag and all after it are left alone.
    kFlagsFirst,
  };

  // `letter` 0: no short form.  Targets are borrowed and keep their value, the
  // default, unless the flag is given.
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

  // Whether --name was added.
  bool Has(const std::string& name) const;

  // What is no flag.  kInvalidArgument names the flag: unknown (with the one
  // that may be meant), no value, a value too many, not a number.
  absl::StatusOr<std::vector<std::string>> Parse(
      const std::vector<std::string>& args, Order order = Order::kMixed) const;

  // Each flag in the order they were added, in lines of at most 80 columns.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    char letter = 0;
    std::string value_name;
    std::string help;
    bool* bool_target = nullptr;
    std::string* string_target = nullptr;
    std::vector<std::string>* strings_target = nullptr;
    int64_t* int_target = nullptr;
    int64_t lowest = 0;
  };
  // One argument taken apart: "--name=value" or "-nvalue".
  struct Given {
    const Flag* flag = nullptr;
    std::string shown;
    bool has_value = false;
    std::string value;
  };

  absl::StatusOr<Given> TakeApart(const std::string& arg) const;
  // "; did you mean --wait?", or "".
  std::string Suggestion(const std::string& name) const;
  static absl::Status Set(const Given& given);

  std::vector<Flag> flags_;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_FLAGS_H_
