// A file descriptor that is closed with its object.  Move-only.
#ifndef ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_
#define ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace roundhouse {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes it over; -1: none.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_
