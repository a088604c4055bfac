// POSIX calls of AtomicFile. Order of the guarantees: sync the file, rename it, sync the directory.
#include "tensor/files/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/system/files.h"
#include "tensor/system/process.h"

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
    if (!was_pending_) take_pending_signal(signal_);
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

// The process that wrote a temporary file NAME.tmp-PROCESS-NUMBER; 0 for other names.
pid_t writer_of(std::string_view name) {
  constexpr std::string_view kMark = ".tmp-";
  const auto mark = name.rfind(kMark);
  if (mark == std::string_view::npos) return 0;
  pid_t process = 0;
  unsigned number = 0;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data() + mark + kMark.size(), end, process);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return 0;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  return second.ec == std::errc() && second.ptr == end ? process : 0;
}

}  // namespace

std::string why_not_writable(const std::string& path) {
  struct stat there {};
  // What cannot be looked at cannot be written either, and opening it says why.
  if (lstat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return "";
  if (S_ISDIR(there.st_mode)) return "it is a folder (name a file)";
  if (S_ISLNK(there.st_mode)) return "it is a link (name the file itself, or remove the link)";
  return fmt::format("it is a {} (name a regular file, or a new one)", S_ISFIFO(there.st_mode)   ? "pipe"
                                                                       : S_ISSOCK(there.st_mode) ? "socket"
                                                                                                 : "device");
}

bool is_temporary_name(const std::string& name) {
  return writer_of(name) > 0;
}

bool is_left_over(const std::string& name) {
  const pid_t writer = writer_of(name);
  return writer > 0 && (writer == getpid() || has_ended(writer));
}

void remove_left_overs_of(const std::string& path) {
  const std::string folder = parent_directory(path), mark = path.substr(path.find_last_of('/') + 1) + ".tmp-";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  std::vector<std::string> left;
  while (const dirent* entry = entries ? readdir(entries.get()) : nullptr)
    if (std::string_view(entry->d_name).starts_with(mark) && is_left_over(entry->d_name))
      left.emplace_back(entry->d_name);
  for (const std::string& name : left) unlink((folder + "/" + name).c_str());
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  // The system ends paths at a NUL byte: the file would get a different name.
  if (path.empty() || path.find('\0') != std::string::npos)
    fail<IoError>("write: the path is empty or holds a NUL byte");
  if (const std::string why = why_not_writable(path); !why.empty())
    fail<IoError>("write: cannot write {}: {}", path, why);
  // Opened before anything is written, so that a directory that cannot be synced fails while the target is
  // whole.
  directory_.reset(open(parent_directory(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory_.get() < 0 && (errno == ENOENT || errno == ENOTDIR))
    fail<IoError>("write: cannot write {}: {} is not a folder (make it first)", path, parent_directory(path));
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
