// Files and folders of a test: a folder that goes with the test, and whole files as bytes.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace eddy::test {

// The bytes of a file; fails the test when there is none.
inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) FAIL("cannot read ", path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Makes a file of these bytes.
inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  // A fresh file: ext4 writes a file that replaces a truncated one to the disk at once, which costs
  // milliseconds.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// An empty folder under the system's temporary folder, removed with this object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "eddy-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  // The path of a file in it, or of the folder itself.
  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  // Writes a file, with the folders that it needs. Returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path(name);
  }
  // How many files and folders lie in it, not counting what lies in those.
  std::int64_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

// Every file below a folder with its bytes, and every folder, by path: equal when nothing was touched.
inline std::vector<std::pair<std::string, std::string>> content_of(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    found.emplace_back(entry.path().string(),
                       entry.is_regular_file() ? read_bytes(entry.path()) : std::string("(folder)"));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace eddy::test
