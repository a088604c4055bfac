// POSIX calls of AtomicFile. Order of the guarantees: fsync(file), rename, fsync(directory).
#include "tensor/files/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "tensor/base/format.h"

namespace eddy {
namespace {

// Exceeding RLIMIT_FSIZE raises SIGXFSZ, which ends the process unless it is ignored. The signal goes to the
// writing thread, so blocking it here and removing it from the queue leaves a plain EFBIG.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &old_);
  }
  ~FileSizeSignalBlock() {
    const timespec now{0, 0};
    if (!was_pending_) {
      while (sigtimedwait(&signal_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t signal_, old_;
  bool was_pending_;
};

std::string parent_directory(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

int sync_file(int file) {
  int result;
  do {
    result = fsync(file);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  // The system ends paths at a NUL byte: the file would get a different name.
  if (path.empty() || path.find('\0') != std::string::npos)
    fail<IoError>("write: the path is empty or holds a NUL byte");
  // Opened before anything is written, so that a directory that cannot be synced fails while the target is
  // whole.
  directory_.reset(open(parent_directory(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory_.get() < 0) refuse("open the directory of", errno);
  static std::atomic<unsigned> counter{0};
  // A killed process with the same id may have left a file of this name; try the next number.
  for (int attempt = 0; attempt < 100 && file_.get() < 0; ++attempt) {
    temporary_ = fmt::format("{}.tmp-{}-{}", path, getpid(), counter++);
    file_.reset(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.get() < 0 && errno != EEXIST) break;
  }
  if (file_.get() < 0) refuse("create a temporary file beside", errno);
}

AtomicFile::~AtomicFile() {
  if (!in_place_) unlink(temporary_.c_str());
}

void AtomicFile::refuse(const char* action, int error) const {
  fail<IoError>("write: cannot {} {} after {} bytes: {} ({})", action, path_, written_,
                std::generic_category().message(error),
                in_place_ ? "the new file is in place but may not survive a power cut"
                          : "nothing at that path was changed");
}

void AtomicFile::write(const void* data, std::int64_t bytes) {
  const FileSizeSignalBlock block;
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    constexpr std::int64_t kChunk = std::int64_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB in one call
    const ssize_t count = ::write(file_.get(), next, static_cast<std::size_t>(std::min(bytes, kChunk)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse("write", count < 0 ? errno : ENOSPC);
    next += count;
    bytes -= count;
    written_ += count;
  }
}

void AtomicFile::commit() {
  if (sync_file(file_.get()) != 0) refuse("sync", errno);
  // Some network file systems report a failed write only here.
  if (file_.reset() != 0 && errno != EINTR) refuse("close", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) refuse("rename the finished file to", errno);
  in_place_ = true;
  // EINVAL: a file system that cannot sync directories, where nothing more can be done.
  if (sync_file(directory_.get()) != 0 && errno != EINVAL) refuse("sync the directory of", errno);
}

}  // namespace eddy
