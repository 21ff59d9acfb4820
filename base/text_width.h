// How many columns text takes on a terminal, which are neither its bytes nor
// its characters: ideographs and most emoji take two, combining marks none.
//
// The C library's tables say it (wcwidth in the locale C.UTF-8).  On a system
// without that locale each character beyond ASCII counts as two columns, so
// that nothing is ever wider than it says.  `text` is what
// base/visible_text.h made: UTF-8 without control characters.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_TEXT_WIDTH_H_
#define ROUNDHOUSE_BASE_TEXT_WIDTH_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace roundhouse {

size_t TextWidth(std::string_view text);

// The longest beginning of whole characters that takes at most `columns`.
std::string FitWidth(std::string_view text, size_t columns);

// `text` with blanks behind it up to `columns`; as it is where it is wider.
std::string PadWidth(std::string_view text, size_t columns);

// The words of one paragraph in lines of at most `columns`; a longer word has
// a line of its own.  Spaces between words are kept but at the ends of lines.
std::vector<std::string> WrapText(std::string_view text, size_t columns);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_TEXT_WIDTH_H_
