// Whole-file reads and replacements through POSIX calls: the standard streams have no fsync.
#include "train/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/format.h"

namespace eddy {
namespace {

// A file descriptor that is closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_io(const char* op, const char* what, const std::filesystem::path& path, int error) {
  fail<IoError>("{}: {}: {}: {}", op, what, path.string(), std::strerror(error));
}

// 0, or the errno of the failed write.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_io("read_text_file", "cannot open", path, errno);
  std::string text;
  constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kBlockBytes);
    const ssize_t got = ::read(file.get(), text.data() + before, kBlockBytes);
    text.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read_text_file", "cannot read", path, errno);
    if (got == 0) return text;
  }
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  constexpr const char* op = "replace_text_file";
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  // The process id keeps two processes from writing the same neighbour.
  const std::filesystem::path neighbour = path.string() + ".tmp-" + std::to_string(::getpid());
  int error = 0;
  {
    const Descriptor file(::open(neighbour.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) fail_io(op, "cannot create", neighbour, errno);
    error = write_all(file.get(), text);
    if (error == 0 && ::fsync(file.get()) != 0) error = errno;
  }
  if (error == 0 && ::rename(neighbour.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(neighbour.c_str());
    fail_io(op, "cannot write", path, error);
  }
  // Some file systems refuse to sync a folder; the new file is complete either way, so that is no error.
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) (void)::fsync(parent.get());
}

}  // namespace eddy
