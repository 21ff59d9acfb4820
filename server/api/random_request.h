// Requests made of a fuzzer's bytes: every field of a message, by its
// descriptor.  For fuzz tests.  Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_API_RANDOM_REQUEST_H_
#define ROUNDHOUSE_SERVER_API_RANDOM_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace roundhouse {

// Bytes one after the other, then zeroes without end.
class ByteSource {
 public:
  explicit ByteSource(absl::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Next();
  // Little-endian, of eight bytes.
  uint64_t NextWord();
  // `count` bytes, fewer at the end.
  std::string Take(size_t count);

 private:
  absl::string_view bytes_;
};

// Fills `message`: which fields are set and with what is chosen by `bytes`.
// Numbers are often at the ends of their ranges, strings often one of `words`,
// else any bytes.
void FillRandomly(ByteSource& bytes, const std::vector<std::string>& words,
                  google::protobuf::Message* message);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_RANDOM_REQUEST_H_
