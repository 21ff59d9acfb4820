#include "base/visible_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace roundhouse {
namespace {

constexpr size_t kLongestCharacterBytes = 4;

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

// 0: no first byte of a character.
size_t LengthByLead(unsigned char lead) {
  return lead < 0x80             ? 1
         : (lead & 0xe0) == 0xc0 ? 2
         : (lead & 0xf0) == 0xe0 ? 3
         : (lead & 0xf8) == 0xf0 ? 4
                                 : 0;
}

// A longer form than needed may hide a control character.
bool IsCharacter(uint32_t code, size_t bytes) {
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= kLeast[bytes] && code <= 0x10ffff &&
         (code < 0xd800 || code > 0xdfff);
}

// The character at `at`.
Character Decode(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t bytes = LengthByLead(lead);
  if (bytes == 0 || bytes > text.size() - at) return {};
  uint32_t code = bytes == 1 ? lead : lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3f);
  }
  return IsCharacter(code, bytes) ? Character{code, bytes} : Character{};
}

bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

// Also the two characters that end lines.
bool TurnsWriting(uint32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string Spelled(const char* format, uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof(text), format, static_cast<unsigned>(number));
  return text;
}

std::string SpelledInText(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  return code < 0x80 ? Spelled("\\x%02x", code) : Spelled("\\u%04x", code);
}

// `spell` of each character that is not to be seen and not in `kept`.
template <typename Spell>
std::string Visible(std::string_view text, std::string_view kept,
                    const Spell& spell) {
  std::string visible;
  visible.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character next = Decode(text, at);
    if (next.bytes == 0) {
      visible += Spelled("\\x%02x", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const bool hidden = IsControl(next.code) || TurnsWriting(next.code);
    if (hidden && kept.find(text[at]) == std::string_view::npos) {
      visible += spell(next.code);
    } else {
      visible.append(text.substr(at, next.bytes));
    }
    at += next.bytes;
  }
  return visible;
}

}  // namespace

std::string VisibleText(std::string_view text) {
  return Visible(text, "\n\t", SpelledInText);
}

std::string VisibleLine(std::string_view text) {
  return Visible(text, "", SpelledInText);
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Decode(text, at).bytes;
    if (bytes == 0) {
      valid += Spelled("\\x%02x", static_cast<unsigned char>(text[at++]));
    } else {
      valid.append(text.substr(at, bytes));
      at += bytes;
    }
  }
  return valid;
}

std::string VisibleJson(std::string_view json) {
  return Visible(json, "\n",
                 [](uint32_t code) { return Spelled("\\u%04x", code); });
}

size_t UnfinishedBytes(std::string_view text) {
  const size_t most = std::min(text.size(), kLongestCharacterBytes - 1);
  for (size_t back = 1; back <= most; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    return LengthByLead(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace roundhouse
