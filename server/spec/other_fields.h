// Fields of LLaMA-Factory's, axolotl's and TRL's job files that are no other
// name for a field of ours (those are aliases: spec_fields.cc).  Private to
// server/spec.
//
// Pure functions and values; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_OTHER_FIELDS_H_
#define ROUNDHOUSE_SERVER_SPEC_OTHER_FIELDS_H_

#include <string>
#include <vector>

#include "server/spec/spec_value.h"

namespace roundhouse {

// A value with a meaning here.
struct OtherValue {
  const char* text;
  // What it says in our words; "": what is so anyway.
  const char* field = "";
  const char* value = "";
  // Must be given beside it; "": nothing.
  const char* needs = "";
};

struct OtherField {
  const char* name;
  // Whatever it says means nothing here; then there is no more to it.
  bool ignored = false;
  std::vector<OtherValue> values;
  // What to do with any other value, after "name: ".
  const char* remedy = "";
  // Our field that it is another tool's way to say; "": none.
  const char* stands_for = "";
};

const std::vector<OtherField>& OtherFields();
// Null: no tool has a field of that name, as far as is known here.
const OtherField* FindOtherField(const std::string& name);
// Null: another value.
const OtherValue* FindOtherValue(const OtherField& field,
                                 const SpecValue& value);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_OTHER_FIELDS_H_
