// Where this program finds the exercises, and what those of them link that need more than a compiler: beside the
// program where it was built, or below the folder it was installed in.
#pragma once

#include <filesystem>
#include <vector>

namespace eddy::training {

struct Installation {
  std::filesystem::path
      exercises;  // examples/learn of a tree, share/eddy/learn of an installed Eddy, or a class's own
  std::filesystem::path checks;                 // learn.h, which checks include
  std::filesystem::path tree;                   // its root; empty for an installed Eddy
  std::vector<std::filesystem::path> includes;  // for <eddy/eddy.h>
  std::filesystem::path library;                // libeddy.a; empty where there is none
};

// `exercises`: a folder of other exercises; "": Eddy's.
// errors: IoError where there are no exercises.
Installation find_installation(const std::filesystem::path& exercises = {});

}  // namespace eddy::training
