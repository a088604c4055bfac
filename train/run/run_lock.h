// A lock on a run's folder: only one process at a time trains in it.
#pragma once

#include <filesystem>

namespace eddy {

// Holds the lock while it lives. The operating system releases it when the process ends, however it ends.
// Reading a run needs no lock. On a file system without locks the folder is silently not locked.
// errors: IoError when another process holds the lock, or when the folder cannot be opened.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int folder_ = -1;
};

}  // namespace eddy
