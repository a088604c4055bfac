// The include rules of the source tree: layers depend one way, CUDA stays in its folder, and what is included
// exists.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy::test;

const std::vector<std::string> kLayers{"tensor", "autograd", "ops", "models", "train"};

// The place of a folder in the order of layers, -1 for others.
int layer_of(const std::string& path) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), path.substr(0, path.find('/')));
  return found == kLayers.end() ? -1 : static_cast<int>(found - kLayers.begin());
}

bool in_cuda(const std::string& path) {
  return path.starts_with("cuda/");
}

// Headers of NVIDIA's toolkit.
bool is_toolkit_header(const std::string& target) {
  static const std::regex pattern(
      R"((cuda|cublas|curand|cusparse|cusolver|cufft|cudnn|nccl|nvtx|nvToolsExt|nvrtc|thrust/|cub/|cute/|cutlass/|mma\.h|cooperative_groups).*)");
  return std::regex_match(target, pattern) && !target.starts_with("cuda/");
}

const std::vector<Include>& all_includes() {
  static const std::vector<Include> includes =
      includes_below({"tensor", "autograd", "ops", "models", "train", "cuda", "examples"});
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

// The program has the checker of its exercises, which stands beside them.
TEST_CASE("includes: of examples only eddy learn includes a file, of its checker") {
  std::size_t seen = 0;
  for (const Include& include : all_includes()) {
    if (include.file.starts_with("examples/") || !include.target.starts_with("examples/")) continue;
    ++seen;
    CHECK_MESSAGE((include.file == "train/app/program/cmd_learn.cpp" &&
                   include.target.starts_with("examples/learn/checker/")),
                  include.file << " includes " << include.target);
  }
  CHECK(seen > 0);
}

TEST_CASE("includes: what changes a model knows nothing of what looks at one") {
  for (const Include& include : all_includes())
    if (include.file.starts_with("train/") && !include.file.starts_with("train/app/"))
      CHECK_MESSAGE(!include.target.starts_with("train/app/"),
                    include.file << " includes " << include.target);
}

TEST_CASE("includes: the namespaces of train say on which floor a file stands") {
  for (const std::string& file : sources_below({"train"})) {
    const bool app = file.starts_with("train/app/");
    for (const std::string& line : lines_of(file))
      if (line.starts_with("namespace eddy"))
        CHECK_MESSAGE((line == "namespace eddy::training {" || (app && line == "namespace eddy::app {")),
                      file << " has " << line);
  }
}

TEST_CASE("includes: names in quotes are rooted at the tree and exist") {
  for (const Include& include : all_includes()) {
    if (!include.quoted) continue;
    // The build writes string literals of data files (cmake/Embed.cmake), and what names each family
    // (cmake/Families.cmake).
    const fs::path build = EDDY_BINARY_DIR;
    const bool exists = fs::exists(in_tree(include.target)) ||
                        fs::exists(build / "generated" / include.target) ||
                        fs::exists(build / "include" / include.target);
    CHECK_MESSAGE(exists, include.file << " includes " << include.target);
    CHECK_MESSAGE(include.target.find("..") == std::string::npos,
                  include.file << " includes " << include.target);
  }
}

TEST_CASE("includes: the toolkit of CUDA is seen in cuda and in kernels of examples and in no plain header") {
  for (const Include& include : all_includes()) {
    if (include.file.starts_with("examples/") && include.file.ends_with(".cu")) continue;
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
