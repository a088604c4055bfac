// A regular file opened for reading: the one way in which Eddy opens files. Opening never waits for the writer of
// a pipe, reading ends at the size that the file had when it was opened, and a file that becomes shorter while
// it is read is an error and no signal, as it would be if the file were mapped.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tensor/files/descriptor.h"

namespace eddy {

// An open file, of which copies share the descriptor.
class InputFile {
 public:
  // Opens it.
  // errors: IoError when there is no such file, when it is no regular one (a folder, a pipe, a device), or when
  // it cannot be opened.
  explicit InputFile(std::string path);

  // The path, as it was given.
  const std::string& path() const { return path_; }
  // The size, when it was opened.
  std::int64_t bytes() const { return bytes_; }

  // Copies `bytes` bytes from `offset` on; the range lies within the file.
  // errors: IoError when the file has become shorter, or the system cannot read it.
  void read(std::int64_t offset, void* into, std::int64_t bytes) const;
  // The whole content.
  // errors: as read; IoError when it has more than `most` bytes; OutOfMemoryError.
  std::string text(std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;

 private:
  std::string path_;
  std::shared_ptr<const Descriptor> file_;
  std::int64_t bytes_ = 0;
};

}  // namespace eddy
