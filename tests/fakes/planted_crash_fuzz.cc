// A fuzz entry with a bug, on which fuzz_driver_test tries the driver.

#include <cstdint>
#include <cstdlib>
#include <string>

// Dies of "one 9", two mutations away from its corpus.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find("one 9") != std::string::npos) abort();
  return 0;
}
