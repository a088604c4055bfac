// The lock by flock on the folder itself.
#include "train/run/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/base/format.h"

namespace eddy {

RunLock::RunLock(const std::filesystem::path& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_ < 0)
    fail<IoError>("run: {} cannot be opened: {} (a run's folder)", folder.string(), std::strerror(errno));
  if (::flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(folder_);
  fail<IoError>("train: another process trains in {} (stop it first, or choose another folder)",
                folder.string());
}

RunLock::~RunLock() {
  ::close(folder_);
}

}  // namespace eddy
