// What a plan does without where host memory is short, as rows of a table.
#ifndef ROUNDHOUSE_CLIENT_TABLES_SHORT_MEMORY_H_
#define ROUNDHOUSE_CLIENT_TABLES_SHORT_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace roundhouse::client {

// `saved` of all `inputs` of backward stages, `bytes` between stages and the
// `wanted_bytes` with which no slot would wait for memory.  No row where
// nothing is done without.
std::vector<std::vector<std::string>> ShortMemoryRows(int64_t inputs,
                                                      int64_t saved,
                                                      int64_t bytes,
                                                      int64_t wanted_bytes);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_SHORT_MEMORY_H_
