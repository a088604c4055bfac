// Writes a file completely or not at all: it writes a temporary file beside the target, syncs it, renames it
// to the target, and syncs the directory. After a crash or on a full disk the old file is unchanged.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/files/descriptor.h"

namespace eddy {

// Returns why no file may be written at a path, such as "it is a folder"; empty when one may: the path is a new
// name, or that of a regular file. A rename would put a file in the place of a device, and a link may lead to what
// is not the writer's. Links among the folders of the path are followed.
std::string why_not_writable(const std::string& path);

// Returns whether a file has the name of a temporary one, and whether its writer is also gone (ended, if only as a
// zombie), or had this process's number.
bool is_temporary_name(const std::string& name);
bool is_left_over(const std::string& name);

// Removes the temporary files that killed processes left beside the file `path`.
void remove_left_overs_of(const std::string& path);

class AtomicFile {
 public:
  // Creates the temporary file.
  // errors: IoError with the path and the system's reason, or why_not_writable.
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
