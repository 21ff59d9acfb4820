// Test only: how many histories, rounds or damages a test makes, and from which
// seed (ROUNDHOUSE_COUNT, ROUNDHOUSE_SEED).
#ifndef ROUNDHOUSE_BASE_NUMBER_FROM_ENVIRONMENT_H_
#define ROUNDHOUSE_BASE_NUMBER_FROM_ENVIRONMENT_H_

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "base/log.h"

namespace roundhouse {

// `otherwise` where it is not set.  What is no number above 0 ends the process.
inline uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t number = otherwise;
  ROUNDHOUSE_CHECK(text == nullptr ||
                   (absl::SimpleAtoi(text, &number) && number > 0))
      << name << " is no number above 0: " << text;
  return number;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_NUMBER_FROM_ENVIRONMENT_H_
