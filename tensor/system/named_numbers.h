// Files of lines "name number", as those of Linux's /proc and of its control groups.
#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace eddy {

// Returns the number behind a name at the beginning of a line; 0 without one.
inline std::int64_t number_behind(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word; lines >> word; lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (word == name) {
      std::int64_t number = 0;
      lines >> number;
      return number;
    }
  return 0;
}

}  // namespace eddy
