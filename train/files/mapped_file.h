// A file's bytes, mapped read-only into memory and unmapped by the destructor of the last copy. A large text
// costs address space; only the pages that are read cost memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace eddy {

class MappedFile {
 public:
  // errors: IoError when the path is missing, is not a regular file or cannot be read. An empty file is an empty
  // view.
  explicit MappedFile(const std::string& path);

  // The file's bytes. Valid while this object or a copy lives; the file must not be shortened meanwhile.
  std::string_view bytes() const { return {data_.get(), data_ == nullptr ? 0 : size_}; }

 private:
  std::shared_ptr<const char> data_;
  std::size_t size_ = 0;
};

}  // namespace eddy
