// Looks for the subfolders by their names.
#include "train/text/split_folder.h"

#include <filesystem>
#include <system_error>

namespace eddy {

std::optional<SplitFolder> find_splits(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return std::nullopt;
  const auto folder = [&](const char* name) {
    std::error_code error;
    const fs::path found = fs::path(path) / name;
    return fs::is_directory(found, error) ? found.string() : std::string();
  };
  SplitFolder splits{folder("train"), folder("valid"), folder("test")};
  if (splits.valid.empty()) splits.valid = folder("validation");
  if (splits.train.empty() || splits.valid.empty()) return std::nullopt;
  return splits;
}

}  // namespace eddy
