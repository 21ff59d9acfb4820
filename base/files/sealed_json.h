// JSON objects in files, with the SHA-256 of their own text.
//
//   {"manifest_sha256": "<64 digits>",
//   ...
//
// The digits are of every byte behind that field, so that any flipped bit of
// the file shows, in white space too.  It is still JSON.  Files of older
// versions have no seal.  server/prepare/common/disk.py writes the same.
//
// Pure functions.
#ifndef ROUNDHOUSE_BASE_FILES_SEALED_JSON_H_
#define ROUNDHOUSE_BASE_FILES_SEALED_JSON_H_

#include <string>

#include "absl/strings/string_view.h"

namespace roundhouse {

// REQUIRES: `object` is the text of a JSON object with one field at least.
std::string SealJson(absl::string_view object);

enum class Seal {
  kNone,    // the text does not begin with one
  kWhole,   // the text is as it was sealed
  kBroken,  // it is not
};
Seal CheckSeal(absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_SEALED_JSON_H_
