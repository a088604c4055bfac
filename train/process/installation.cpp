// A build folder names its tree in CMakeCache.txt.
#include "train/process/installation.h"

#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/system/process.h"

namespace eddy::training {
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

Installation find_installation(const fs::path& exercises) {
  std::error_code error;
  const fs::path folder = fs::canonical(own_program(), error).parent_path();
  Installation installation;
  installation.tree = tree_of(folder);
  if (!installation.tree.empty()) {
    installation.exercises = installation.tree / "examples" / "learn";
    installation.includes = {installation.tree, folder / "include"};
    installation.library = folder / "libeddy.a";
  } else {
    const fs::path prefix = folder.parent_path(), include = prefix / "include";
    installation.exercises = prefix / "share" / "eddy" / "learn";
    installation.includes = {include, include / "eddy"};
    installation.library = installed_library(prefix);
  }
  installation.checks = installation.exercises / "checks";
  if (!exercises.empty() && !fs::is_directory(exercises, error))
    fail<IoError>("learn: --exercises: {} is not a folder", exercises.string());
  if (!exercises.empty()) installation.exercises = exercises;
  if (!fs::is_directory(installation.exercises, error))
    fail<IoError>(
        "learn: no exercises in {} (they lie beside Eddy's own program: run that of a tree's build folder, or as "
        "cmake --install put it in its place)",
        installation.exercises.string());
  if (!fs::exists(installation.library, error)) installation.library.clear();
  return installation;
}

}  // namespace eddy::training
