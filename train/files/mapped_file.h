// A file's bytes, mapped read-only into memory and unmapped by the destructor. A large text costs address
// space; only the pages that are read cost memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace eddy {

class MappedFile {
 public:
  // errors: IoError when the path is missing, is not a regular file or cannot be read. An empty file is an empty
  // view.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // The file's bytes. Valid while this object lives; the file must not be shortened meanwhile.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace eddy
