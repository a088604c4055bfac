// mmap of a regular file (POSIX).
#include "train/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"

namespace eddy {
MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    fail<IoError>("file: cannot open '{}': {} ({})", path, std::strerror(error),
                  error == EACCES ? "give yourself the right to read it" : "check the path");
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0)
    fail<IoError>("file: cannot ask for the size of '{}': {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    fail<IoError>("file: '{}' is not a regular file (name a file; folders, pipes and devices cannot be read)",
                  path);
  if (status.st_size == 0) return;  // mmap refuses a length of 0

  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED)
    fail<IoError>("file: cannot map '{}' ({} bytes): {}", path, size, std::strerror(errno));
  data_ = {static_cast<const char*>(data), [data, size](const char*) { munmap(data, size); }};
  size_ = size;
}

}  // namespace eddy
