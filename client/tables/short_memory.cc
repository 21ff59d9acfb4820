#include "client/tables/short_memory.h"

#include "absl/strings/str_cat.h"
#include "client/output.h"

namespace roundhouse::client {

std::vector<std::vector<std::string>> ShortMemoryRows(int64_t inputs,
                                                      int64_t saved,
                                                      int64_t bytes,
                                                      int64_t wanted_bytes) {
  std::vector<std::vector<std::string>> rows;
  if (saved < inputs) {
    rows.push_back(
        {"  saved inputs:", absl::StrCat(saved, " of ", inputs,
                                         "; the others are computed again")});
  }
  if (wanted_bytes > bytes) {
    rows.push_back({"  sent ahead:",
                    absl::StrCat("fewer slots; ", FormatBytes(wanted_bytes),
                                 " between stages would delay none")});
  }
  return rows;
}

}  // namespace roundhouse::client
