// Data sets published with their splits, such as PG19: a folder with the subfolders train and valid (or
// validation), and perhaps test.
#pragma once

#include <optional>
#include <string>

namespace eddy {

// The paths of the subfolders.
struct SplitFolder {
  std::string train, valid, test;  // test is empty where there is none
};

// The splits of a folder; nullopt for a file, and for a folder that does not have both train and valid.
std::optional<SplitFolder> find_splits(const std::string& path);

}  // namespace eddy
