// fsync, a temporary file whose name is removed at once, and folders that are looked up in their parents. macOS flushes
// a drive's own cache by F_FULLFSYNC alone, and can exchange names.
#include "tensor/system/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace eddy {
namespace {

bool are_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// The name of a folder among the entries of its parent, whose descriptor is closed; "" without one.
std::string name_in(int parent, const struct stat& folder) {
  DIR* const entries = ::fdopendir(parent);
  if (entries == nullptr) {
    ::close(parent);
    return "";
  }
  std::string name;
  while (const dirent* const entry = name.empty() ? ::readdir(entries) : nullptr) {
    const std::string candidate = entry->d_name;
    struct stat status {};
    if (candidate != "." && candidate != ".." &&
        ::fstatat(parent, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && are_same(status, folder))
      name = candidate;
  }
  ::closedir(entries);
  return name;
}

}  // namespace

int sync_file(int file) {
  int result;
  do {
#if defined(__APPLE__)
    result = ::fcntl(file, F_FULLFSYNC);
    if (result != 0 && errno != EINTR)
      result = ::fsync(file);  // file systems of a network have no F_FULLFSYNC
#else
    result = ::fsync(file);
#endif
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : -1;
}

int exchange_names([[maybe_unused]] const std::string& one, [[maybe_unused]] const std::string& other) {
#if defined(__APPLE__)
  const int result = ::renamex_np(one.c_str(), other.c_str(), RENAME_SWAP);
  if (result != 0 && errno == ENOTSUP) errno = EINVAL;
  return result;
#else
  errno = ENOSYS;
  return -1;
#endif
}

int unnamed_file(const char* called) {
  const char* const folder = std::getenv("TMPDIR");
  std::string name = folder != nullptr && *folder != '\0' ? folder : "/tmp";
  name += "/eddy-" + std::string(called) + "-XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) return -1;
  ::unlink(name.c_str());
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
  return file;
}

// The way that getcwd once went: from a folder to its parent, where it has a name.
std::string path_of_folder(int folder) {
  std::string path;
  int at = ::fcntl(folder, F_DUPFD_CLOEXEC, 0);
  while (at >= 0) {
    struct stat own {};
    struct stat above {};
    const int parent = ::openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool known = parent >= 0 && ::fstat(at, &own) == 0 && ::fstat(parent, &above) == 0;
    ::close(at);
    at = parent;
    if (known && !are_same(own, above)) {
      const std::string name = name_in(::fcntl(parent, F_DUPFD_CLOEXEC, 0), own);
      if (!name.empty()) {
        path.insert(0, "/" + name);
        continue;
      }
    } else if (known) {
      ::close(at);
      return path.empty() ? "/" : path;
    }
    if (at >= 0) ::close(at);
    return "";
  }
  return "";
}

std::timespec change_time(const struct stat& status) {
#if defined(__APPLE__)
  return status.st_mtimespec;
#else
  return status.st_mtim;
#endif
}

}  // namespace eddy
