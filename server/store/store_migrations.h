// The SQL with which a store of one version becomes one of the next.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_MIGRATIONS_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_MIGRATIONS_H_

namespace roundhouse {

// Version 0 is an empty file.  REQUIRES: 0 <= from < kStoreSchemaVersion.
const char* Migration(int from);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_MIGRATIONS_H_
