// A build folder names its tree in CMakeCache.txt.
#include "examples/learn/checker/place.h"

#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy::app {
namespace {

namespace fs = std::filesystem;

// The tree that a build folder was configured from; empty for another folder.
fs::path tree_of(const fs::path& build) {
  constexpr std::string_view kKey = "CMAKE_HOME_DIRECTORY:INTERNAL=";
  std::ifstream cache(build / "CMakeCache.txt");
  for (std::string line; std::getline(cache, line);)
    if (line.starts_with(kKey)) return line.substr(kKey.size());
  return {};
}

// The library of an installed Eddy: in lib, lib64, or a folder of lib named after the machine.
fs::path installed_library(const fs::path& prefix) {
  std::vector<fs::path> folders{prefix / "lib", prefix / "lib64"};
  std::error_code error;
  for (fs::directory_iterator entry(prefix / "lib", error), end; !error && entry != end;
       entry.increment(error))
    folders.push_back(entry->path());
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "libeddy.a", error)) return folder / "libeddy.a";
  return {};
}

}  // namespace

Place find_place() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  Place place;
  place.tree = tree_of(folder);
  if (!place.tree.empty()) {
    place.exercises = place.tree / "examples" / "learn";
    place.includes = {place.tree, folder / "include"};
    place.library = folder / "libeddy.a";
  } else {
    const fs::path prefix = folder.parent_path(), include = prefix / "include";
    place.exercises = prefix / "share" / "eddy" / "learn";
    place.includes = {include, include / "eddy"};
    place.library = installed_library(prefix);
  }
  if (!fs::is_directory(place.exercises, error))
    fail<IoError>(
        "learn: no exercises in {} (they lie beside Eddy's own program: run that of a tree's build folder, or as "
        "cmake --install put it in its place)",
        place.exercises.string());
  if (!fs::exists(place.library, error)) place.library.clear();
  return place;
}

}  // namespace eddy::app
