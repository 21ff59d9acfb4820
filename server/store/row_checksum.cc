#include "server/store/row_checksum.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "openssl/sha.h"
#include "sqlite3.h"

namespace roundhouse {
namespace {

constexpr int kAnyArguments = -1;

void AppendWord(uint64_t word, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) {
    out->push_back(static_cast<char>(word >> shift & 0xff));
  }
}

void AppendValue(sqlite3_value* value, std::string* out) {
  const int type = sqlite3_value_type(value);
  out->push_back(static_cast<char>(type));
  if (type == SQLITE_INTEGER) {
    AppendWord(static_cast<uint64_t>(sqlite3_value_int64(value)), out);
  } else if (type == SQLITE_FLOAT) {
    const double number = sqlite3_value_double(value);
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    AppendWord(bits, out);
  } else if (type != SQLITE_NULL) {
    // The bytes as they are stored: a text is not converted.
    const void* bytes = sqlite3_value_blob(value);
    const int size = sqlite3_value_bytes(value);
    AppendWord(static_cast<uint64_t>(size), out);
    if (size > 0) out->append(static_cast<const char*>(bytes), size);
  }
}

void RowChecksum(sqlite3_context* context, int count, sqlite3_value** values) {
  std::string text;
  for (int i = 0; i < count; ++i) AppendValue(values[i], &text);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest);
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum |= uint64_t{digest[i]} << (8 * i);
  sqlite3_result_int64(context, static_cast<int64_t>(sum));
}

}  // namespace

int RegisterRowChecksum(sqlite3* db) {
  return sqlite3_create_function_v2(
      db, "row_checksum", kAnyArguments,
      SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr,
      RowChecksum, nullptr, nullptr, nullptr);
}

}  // namespace roundhouse
