#include "base/model/mutation.h"

#include <algorithm>
#include <cctype>

namespace roundhouse {
namespace {

constexpr const char* kFragments[] = {
    "null", "true", "{", "}",  "[",  "]",    ",",         ":",
    "\"",   "\\u",  " ", "\n", "{}", "[[[[", "\"\": {},", "\xff",
};
constexpr const char* kNumbers[] = {
    "0",
    "1",
    "2",
    "8",
    "16",
    "-1",
    "-0",
    "0.5",
    "1e999",
    "1e-999",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
};

size_t Below(size_t limit, std::mt19937_64* random) {
  return limit == 0 ? 0 : static_cast<size_t>((*random)() % limit);
}

void ReplaceNumber(std::string* text, std::mt19937_64* random) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  auto begin = std::find_if(text->begin() + Below(text->size(), random),
                            text->end(), is_digit);
  const auto end = std::find_if_not(begin, text->end(), is_digit);
  text->replace(begin, end, kNumbers[Below(std::size(kNumbers), random)]);
}

void EditOnce(std::string* text, std::mt19937_64* random) {
  const size_t at = Below(text->size(), random);
  const size_t length = 1 + Below(24, random);
  switch (Below(8, random)) {
    case 0:
      if (!text->empty()) (*text)[at] ^= 1 << Below(8, random);
      return;
    case 1:
      text->erase(at, length);
      return;
    case 2:
      text->insert(at, text->substr(at, length));
      return;
    case 3:
      text->insert(at, kFragments[Below(std::size(kFragments), random)]);
      return;
    case 4:
      if (Below(8, random) == 0) text->resize(at);
      return;
    default:
      ReplaceNumber(text, random);
      return;
  }
}

}  // namespace

std::string Mutate(std::string text, std::mt19937_64* random) {
  const size_t edits = 1 + Below(4, random);
  for (size_t i = 0; i < edits; ++i) EditOnce(&text, random);
  return text;
}

}  // namespace roundhouse
