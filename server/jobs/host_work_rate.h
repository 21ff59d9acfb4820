// How fast the host worker reduces and updates, for the plans that are searched
// for.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_JOBS_HOST_WORK_RATE_H_
#define ROUNDHOUSE_SERVER_JOBS_HOST_WORK_RATE_H_

#include <cstdint>
#include <optional>

namespace roundhouse {

class HostWorkRate {
 public:
  // Smaller operations say more of what starting one costs.
  static constexpr int64_t kLeastBytes = int64_t{16} << 20;

  // An operation that moves so many bytes of host memory took `ns`.
  void Observe(int64_t bytes, int64_t ns) {
    if (bytes < kLeastBytes || ns <= 0) return;
    bytes_ += static_cast<double>(bytes);
    ns_ += static_cast<double>(ns);
  }

  // Bytes per nanosecond, of all such operations so far; nothing before the
  // first.
  std::optional<double> bytes_per_ns() const {
    if (ns_ <= 0) return std::nullopt;
    return bytes_ / ns_;
  }

 private:
  double bytes_ = 0;
  double ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_HOST_WORK_RATE_H_
