// One process at a time trains in a run's folder.
#pragma once

#include <filesystem>

namespace eddy {

// Holds the folder until it dies; the system lets go of it when the process ends, however it ends. Reading a
// run needs no lock. A file system without locks gives none, and says nothing.
// errors: IoError when another process holds the folder, or it cannot be opened.
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
