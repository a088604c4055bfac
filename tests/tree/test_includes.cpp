// The include rules of the source tree: layers depend one way, CUDA stays in its folder, and what is included
// exists.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  std::string file;    // that has the line, from the root of the tree
  std::string target;  // what it names
  bool quoted = false;
};

const std::vector<std::string> kLayers{"tensor", "autograd", "ops", "models", "train"};

// The place of a folder in the order of layers, -1 for others.
int layer_of(const std::string& path) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), path.substr(0, path.find('/')));
  return found == kLayers.end() ? -1 : static_cast<int>(found - kLayers.begin());
}

bool in_cuda(const std::string& path) {
  return path.starts_with("cuda/");
}
bool ends_with_any(const std::string& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return path.ends_with(ending); });
}

// Headers of NVIDIA's toolkit.
bool is_toolkit_header(const std::string& target) {
  static const std::regex pattern(
      R"((cuda|cublas|curand|cusparse|cusolver|cufft|cudnn|nccl|nvtx|nvToolsExt|nvrtc|thrust/|cub/|cute/|cutlass/|mma\.h|cooperative_groups).*)");
  return std::regex_match(target, pattern) && !target.starts_with("cuda/");
}

std::vector<Include> includes_of(const std::vector<std::string>& folders) {
  static const std::regex line_pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*$)");
  const fs::path root = EDDY_SOURCE_DIR;
  std::vector<Include> includes;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string name = entry.path().string();
      if (!entry.is_regular_file() || !ends_with_any(name, {".h", ".cpp", ".cu", ".cuh"})) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (std::regex_match(line, match, line_pattern))
          includes.push_back(
              {fs::relative(entry.path(), root).generic_string(), match[2].str(), match[1].str() == "\""});
      }
    }
  }
  return includes;
}

const std::vector<Include>& all_includes() {
  static const std::vector<Include> includes =
      includes_of({"tensor", "autograd", "ops", "models", "train", "cuda", "examples"});
  return includes;
}

}  // namespace

TEST_CASE("includes: the parser sees the tree") {
  CHECK(all_includes().size() > 300);
}

TEST_CASE("includes: layers depend one way from train down to tensor") {
  for (const Include& include : all_includes()) {
    const int own = layer_of(include.file), other = include.quoted ? layer_of(include.target) : -1;
    if (own < 0 || other < 0) continue;
    CHECK_MESSAGE(other <= own, include.file << " includes " << include.target);
  }
}

TEST_CASE("includes: names in quotes are rooted at the tree and exist") {
  for (const Include& include : all_includes()) {
    if (!include.quoted) continue;
    CHECK_MESSAGE(fs::exists(fs::path(EDDY_SOURCE_DIR) / include.target),
                  include.file << " includes " << include.target);
    CHECK_MESSAGE(include.target.find("..") == std::string::npos,
                  include.file << " includes " << include.target);
  }
}

TEST_CASE("includes: the toolkit of CUDA is seen in cuda and in kernels of examples and in no plain header") {
  for (const Include& include : all_includes()) {
    if (include.file.starts_with("examples/kernels/") && include.file.ends_with(".cu")) continue;
    if (is_toolkit_header(include.target))
      CHECK_MESSAGE((in_cuda(include.file) && !include.file.ends_with(".h")),
                    include.file << " includes " << include.target);
    if (!in_cuda(include.file))
      CHECK_MESSAGE(!ends_with_any(include.target, {".cuh", ".cu"}),
                    include.file << " includes " << include.target);
  }
}

TEST_CASE("includes: cuda knows tensor and the headers of ops") {
  for (const Include& include : all_includes()) {
    if (!in_cuda(include.file) || !include.quoted) continue;
    CHECK_MESSAGE((include.target.starts_with("tensor/") || include.target.starts_with("ops/") ||
                   in_cuda(include.target)),
                  include.file << " includes " << include.target);
  }
}

TEST_CASE("includes: device code stays free of fmt") {
  for (const Include& include : all_includes()) {
    if (!ends_with_any(include.file, {".cu", ".cuh"})) continue;
    CHECK_MESSAGE((!include.target.starts_with("fmt/") && include.target != "tensor/base/format.h"),
                  include.file << " includes " << include.target);
  }
}
