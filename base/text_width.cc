#include "base/text_width.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

namespace roundhouse {
namespace {

// What a character takes that the C library has no width for.
constexpr size_t kWidest = 2;

// The thread's locale while it lives.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) before_ = uselocale(locale_);
  }
  ~Utf8Locale() {
    if (locale_ == nullptr) return;
    uselocale(before_);
    freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

  bool there() const { return locale_ != nullptr; }

 private:
  locale_t locale_;
  locale_t before_ = nullptr;
};

struct Character {
  size_t bytes = 1;
  size_t columns = 1;
};

// The first character of `text`.
Character First(const Utf8Locale& locale, std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return {};
  if (!locale.there()) {
    size_t bytes = 1;
    while (bytes < text.size() &&
           (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) {
      ++bytes;
    }
    return {bytes, kWidest};
  }
  mbstate_t state = {};
  wchar_t character = 0;
  const size_t bytes = mbrtowc(&character, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {1, kWidest};
  const int width = wcwidth(character);
  return {bytes, width < 0 ? kWidest : static_cast<size_t>(width)};
}

struct Prefix {
  size_t bytes = 0;
  size_t columns = 0;
};

Prefix LongestWithin(std::string_view text, size_t columns) {
  const Utf8Locale locale;
  Prefix prefix;
  while (prefix.bytes < text.size()) {
    const Character next = First(locale, text.substr(prefix.bytes));
    if (prefix.columns + next.columns > columns) break;
    prefix.bytes += next.bytes;
    prefix.columns += next.columns;
  }
  return prefix;
}

}  // namespace

size_t TextWidth(std::string_view text) {
  // No text takes more than two columns a byte.
  return LongestWithin(text, kWidest * text.size()).columns;
}

std::string FitWidth(std::string_view text, size_t columns) {
  return std::string(text.substr(0, LongestWithin(text, columns).bytes));
}

std::string PadWidth(std::string_view text, size_t columns) {
  const size_t width = TextWidth(text);
  return std::string(text) +
         std::string(columns - std::min(columns, width), ' ');
}

std::vector<std::string> WrapText(std::string_view text, size_t columns) {
  std::vector<std::string> lines(1);
  size_t at = 0;
  while (at < text.size()) {
    const size_t word =
        std::min(text.find_first_not_of(" \n", at), text.size());
    const size_t end = std::min(text.find_first_of(" \n", word), text.size());
    if (word == end) break;
    // A line's end counts as one space.
    std::string gap(text.substr(at, word - at));
    std::replace(gap.begin(), gap.end(), '\n', ' ');
    const std::string next(text.substr(word, end - word));
    std::string& line = lines.back();
    if (line.empty()) {
      line = next;
    } else if (TextWidth(line) + gap.size() + TextWidth(next) <= columns) {
      line += gap + next;
    } else {
      lines.push_back(next);
    }
    at = end;
  }
  return lines;
}

}  // namespace roundhouse
