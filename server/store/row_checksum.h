// The checksum of a row, as a function of SQL.
//
//   row_checksum(a, b, ...)   INTEGER
//
// The first 8 bytes of the SHA-256 over its arguments in a canonical encoding:
// the type, then 8 bytes little-endian of a number or of a text's length, then
// the text.  Tables store it of all their other columns in a generated column,
// so every write has it and every read can compare (store_schema.h).
//
// Not against somebody who means it: whoever writes rows can compute it, too.
// Pure function; thread-safe.
#ifndef ROUNDHOUSE_SERVER_STORE_ROW_CHECKSUM_H_
#define ROUNDHOUSE_SERVER_STORE_ROW_CHECKSUM_H_

struct sqlite3;

namespace roundhouse {

// Gives the connection the function.  An SQLite result code.
int RegisterRowChecksum(sqlite3* db);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_ROW_CHECKSUM_H_
