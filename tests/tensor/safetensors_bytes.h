// Raw bytes of safetensors files, put together without the library's own writer, for tests of the reader.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace eddy::test {

// A folder of this test's own under the system's temporary folder, removed at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const char* name)
      : path_(std::filesystem::temp_directory_path() / (std::string(name) + "-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::int64_t file_count() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline void put_bytes(const std::string& path, const std::string& bytes) {
  // A fresh file: ext4 writes a file that replaces a truncated one to the disk at once, which costs
  // milliseconds.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string safetensors_with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return bytes + rest;
}

// A file from its header and its data.
inline std::string safetensors_bytes_of(const std::string& header, const std::string& data = "") {
  return safetensors_with_length(header.size(), header + data);
}

}  // namespace eddy::test
