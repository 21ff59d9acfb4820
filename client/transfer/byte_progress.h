// How far a transfer is, in bytes: one line that is written again on a
// terminal, a line from time to time elsewhere.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_BYTE_PROGRESS_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_BYTE_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/environment.h"

namespace roundhouse::client {

// "uploading [=====     ]  50%, 1.0 GiB of 2.0 GiB, 97.1 MiB/s".  Pure.
std::string ByteLine(const std::string& doing, uint64_t done, uint64_t total,
                     double bytes_per_second);

class ByteProgress {
 public:
  // `environment` is borrowed.
  explicit ByteProgress(Environment* environment)
      : environment_(*environment) {}

  // What is done from now on, of `total` bytes, of which `done` are there.
  void Begin(const std::string& doing, uint64_t done, uint64_t total);
  void Update(uint64_t done);
  // Takes the line away.  Idempotent.
  void Finish();

 private:
  Environment& environment_;
  std::string doing_;
  uint64_t total_ = 0;
  uint64_t began_with_ = 0;
  absl::Time began_;
  absl::Time next_ = absl::InfinitePast();
  bool shown_ = false;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_BYTE_PROGRESS_H_
