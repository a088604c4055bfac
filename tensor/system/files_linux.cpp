// fsync, renameat2, memfd_create and /proc/self/fd.
#include "tensor/system/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace eddy {

int sync_file(int file) {
  int result;
  do {
    result = ::fsync(file);
  } while (result != 0 && errno == EINTR);
  return result;
}

int exchange_names(const std::string& one, const std::string& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
}

int unnamed_file(const char* called) {
  return ::memfd_create(called, MFD_CLOEXEC);
}

std::string path_of_folder(int folder) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(folder), error);
  return error ? "" : path.string();
}

std::timespec change_time(const struct stat& status) {
  return status.st_mtim;
}

}  // namespace eddy
