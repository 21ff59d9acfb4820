// The one class that owns a file descriptor: it is closed with its object.
// Move-only.  Errors of close are lost; who wants them syncs first.
#ifndef ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_
#define ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_

#include <errno.h>
#include <unistd.h>

#include <utility>

namespace roundhouse {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes it over; -1: none, and errno says why to whoever asks next.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  // `descriptor = Descriptor()` closes it now.
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  // Keeps errno.
  ~Descriptor() {
    if (fd_ < 0) return;
    const int error = errno;
    close(fd_);
    errno = error;
  }

  int get() const { return fd_; }
  // Gives it up: the caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_DESCRIPTOR_H_
