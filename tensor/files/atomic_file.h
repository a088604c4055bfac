// Writes a file completely or not at all: it writes a temporary file beside the target, syncs it, renames it
// to the target, and syncs the directory. After a crash or on a full disk the old file is unchanged.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/files/descriptor.h"

namespace eddy {

class AtomicFile {
 public:
  // Creates the temporary file.
  // errors: IoError with the path and the system's reason.
  explicit AtomicFile(const std::string& path);
  // Removes the temporary file unless commit() put it in place.
  ~AtomicFile();

  // Appends bytes.
  // errors: IoError (disk full, file size limit, device error); SIGXFSZ never reaches the process.
  void write(const void* data, std::int64_t bytes);
  // Makes the bytes durable and gives the file its name.
  // errors: IoError; until the rename the target is untouched.
  void commit();

 private:
  [[noreturn]] void refuse(const char* action, int error) const;

  std::string path_, temporary_;
  Descriptor file_, directory_;
  std::int64_t written_ = 0;
  bool in_place_ = false;
};

}  // namespace eddy
