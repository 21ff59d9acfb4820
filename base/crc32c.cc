#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace roundhouse {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(
    absl::string_view bytes) {
  uint64_t value = ~uint32_t{0};
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    value = __builtin_ia32_crc32di(value, word);
    at += sizeof(word);
  }
  auto narrow = static_cast<uint32_t>(value);
  for (; left > 0; --left) {
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(*at++));
  }
  return ~narrow;
}
#endif

}  // namespace

uint32_t Crc32cByTable(absl::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char c : bytes) {
    value =
        (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~value;
}

uint32_t Crc32c(absl::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ByInstruction(bytes);
#endif
  return Crc32cByTable(bytes);
}

}  // namespace roundhouse
