// POSIX calls of InputFile.
#include "tensor/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/memory/readable_bytes.h"

namespace eddy {
namespace {

// Where a relative path is looked for.
std::string looked_for(const std::string& path) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error || std::filesystem::path(path).is_absolute()) return "";
  return "; it is taken from the working directory, " + here.string();
}

[[noreturn]] void refuse(const char* action, const std::string& path, int error) {
  const std::string advice = error == EACCES   ? " (give yourself the right to read it)"
                             : error == ENOENT ? " (check the path" + looked_for(path) + ")"
                                               : "";
  fail<IoError>("file: cannot {} {}: {}{}", action, path, std::generic_category().message(error), advice);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  if (path_.find('\0') != std::string::npos) fail<IoError>("file: the path holds a NUL byte");
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  file_ = std::make_shared<Descriptor>(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file_->get() < 0) refuse("open", path_, errno);
  struct stat status {};
  if (::fstat(file_->get(), &status) != 0) refuse("examine", path_, errno);
  if (!S_ISREG(status.st_mode))
    fail<IoError>("file: {} is not a regular file (name a file; folders, pipes and devices cannot be read)",
                  path_);
  bytes_ = status.st_size;
}

void InputFile::read(std::int64_t offset, void* into, std::int64_t bytes) const {
  constexpr std::int64_t kChunk = std::int64_t{1} << 30;  // Linux reads at most 2 GiB - 4 KiB in one call
  char* next = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(file_->get(), next, static_cast<std::size_t>(std::min(bytes, kChunk)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("read", path_, errno);
    if (got == 0)
      fail<IoError>("file: {} became shorter while it was read: {} bytes, {} when it was opened (try again)",
                    path_, offset, bytes_);
    next += got;
    offset += got;
    bytes -= got;
  }
}

std::string InputFile::text(std::int64_t most) const {
  if (bytes_ > most)
    fail<IoError>("file: {} is too large: {} (at most {})", path_,
                  readable_bytes(static_cast<double>(bytes_)), readable_bytes(static_cast<double>(most)));
  std::string text;
  try {
    text.reserve(static_cast<std::size_t>(bytes_));
  } catch (const std::exception&) {  // bad_alloc or length_error
    fail<OutOfMemoryError>("file: no memory for {} of {}", readable_bytes(static_cast<double>(bytes_)),
                           path_);
  }
  // In blocks that stay in a core's cache: resize writes zeros first.
  constexpr std::int64_t kBlock = std::int64_t{1} << 18;
  while (std::ssize(text) < bytes_) {
    const std::int64_t at = std::ssize(text), part = std::min(kBlock, bytes_ - at);
    text.resize(static_cast<std::size_t>(at + part));
    read(at, text.data() + at, part);
  }
  return text;
}

}  // namespace eddy
