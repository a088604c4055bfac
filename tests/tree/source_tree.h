// The source tree as text: its files, their lines and what they include.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace eddy::test {

// The path of something in the tree, given from its root.
inline std::filesystem::path in_tree(const std::string& path) {
  return std::filesystem::path(EDDY_SOURCE_DIR) / path;
}

// Whether a path ends with one of these.
inline bool ends_with_any(const std::string& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return path.ends_with(ending); });
}

// The files below these folders with one of these endings, sorted, as paths from the root of the tree.
inline std::vector<std::string> files_below(const std::vector<std::string>& folders,
                                            const std::vector<std::string>& endings) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(in_tree(folder))) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(in_tree(folder)))
      if (entry.is_regular_file() && ends_with_any(entry.path().string(), endings))
        files.push_back(fs::relative(entry.path(), EDDY_SOURCE_DIR).generic_string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The headers and sources among them.
inline std::vector<std::string> sources_below(const std::vector<std::string>& folders) {
  return files_below(folders, {".h", ".cpp", ".cu", ".cuh"});
}

// The folder of a file: "ops/norm" of "ops/norm/layer_norm.h".
inline std::string folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

// The lines of a file of the tree.
inline std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream stream(in_tree(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Include {
  std::string file;    // that has the line, from the root of the tree
  std::string target;  // what it names
  bool quoted = false;
};

// Every #include of the headers and sources below these folders.
inline std::vector<Include> includes_below(const std::vector<std::string>& folders) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*$)");
  std::vector<Include> includes;
  for (const std::string& file : sources_below(folders))
    for (const std::string& line : lines_of(file)) {
      std::smatch match;
      if (line.find("include") != std::string::npos && std::regex_match(line, match, pattern))
        includes.push_back({file, match[2].str(), match[1].str() == "\""});
    }
  return includes;
}

}  // namespace eddy::test
