// What this program is called, for help, errors and the commands that it suggests: "eddy",
// or the name of a program with models of its own.
#pragma once

#include <string>

namespace eddy::training {

// The command line sets it when it begins.
inline std::string& program_name() {
  static std::string name = "eddy";
  return name;
}

}  // namespace eddy::training
