// A file that appears whole or not at all. It is written under a temporary name beside the target, synced and
// renamed over the target, and the directory is synced. A crash or a full disk leaves the old file as it was.
#pragma once

#include <cstdint>
#include <string>

namespace eddy {

class AtomicFile {
 public:
  // Creates the temporary file.
  // errors: IoError with the path and the system's reason.
  explicit AtomicFile(const std::string& path);
  // Removes the temporary file unless commit() put it in place.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends bytes.
  // errors: IoError (disk full, file size limit, device error); SIGXFSZ never reaches the process.
  void write(const void* data, std::int64_t bytes);
  // Makes the bytes durable and gives the file its name.
  // errors: IoError; until the rename the target is untouched.
  void commit();

 private:
  [[noreturn]] void refuse(const char* action, int error) const;
  void close_all();

  std::string path_, temporary_;
  int file_ = -1, directory_ = -1;
  std::int64_t written_ = 0;
  bool in_place_ = false;
};

}  // namespace eddy
