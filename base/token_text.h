// An access token as people carry it: "rh_", and 256 random bits with a
// checksum in base64 of 48 letters, digits, '-' and '_'.
//
// The checksum finds what was copied wrongly before a server is asked; nothing
// secret follows from it.  Pure but for the random bits; thread-safe.
#ifndef ROUNDHOUSE_BASE_TOKEN_TEXT_H_
#define ROUNDHOUSE_BASE_TOKEN_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace roundhouse {

inline constexpr char kTokenPrefix[] = "rh_";
inline constexpr size_t kTokenSecretBytes = 32;
inline constexpr size_t kTokenChecksumBytes = 4;
inline constexpr size_t kTokenTextBytes = 3 + 48;

// A new one, of the system's random bits.
std::string MakeTokenText();
// Whether it is one, as it was made.
bool IsTokenText(absl::string_view text);
// What is kept of it: the SHA-256 of the whole text, in hexadecimal.
std::string HashOfToken(absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_TOKEN_TEXT_H_
