// A file descriptor that is closed when it goes out of scope.
#pragma once

#include <unistd.h>

#include <utility>

namespace eddy {

// Owns a file descriptor; -1 stands for none.
class Descriptor {
 public:
  // Takes over an open descriptor.
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  // Takes over that of another, which has none then.
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  // The descriptor.
  int get() const { return fd_; }
  // Leaves the descriptor to another owner.
  int release() { return std::exchange(fd_, -1); }
  // Closes the descriptor, if there is one, and holds another; returns what the system says about closing.
  int reset(int fd = -1) {
    const int before = std::exchange(fd_, fd);
    return before < 0 ? 0 : ::close(before);
  }

 private:
  int fd_;
};

}  // namespace eddy
