// The folders of the tree: none is crowded, each has a README, the build knows all of them, and their includes
// make no circle.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy::test;

const std::vector<std::string> kLibrary{
    "tensor", "autograd", "ops", "cuda", "models", "train", "examples/learn/checker"};
const std::vector<std::string> kAll{"tensor", "autograd", "ops",   "cuda",
                                    "models", "train",    "tests", "examples"};

// How many headers and sources lie in each folder itself.
std::map<std::string, int> counts_below(const std::vector<std::string>& folders) {
  std::map<std::string, int> counts;
  for (const std::string& file : sources_below(folders)) ++counts[folder_of(file)];
  return counts;
}

// Which folders a folder includes from, and the includes that say so.
using Graph = std::map<std::string, std::map<std::string, std::vector<Include>>>;

Graph graph_of(const std::vector<Include>& includes) {
  Graph graph;
  for (const Include& include : includes) {
    const std::string from = folder_of(include.file), to = folder_of(include.target);
    if (include.quoted && from != to) graph[from][to].push_back(include);
  }
  return graph;
}

// Goes on from the last folder of `path`. Returns whether `path` now is a circle, its first folder again at its
// end.
bool walk(const Graph& graph, std::vector<std::string>& path, std::set<std::string>& done) {
  const auto next = graph.find(path.back());
  if (next != graph.end())
    for (const auto& [to, includes] : next->second) {
      if (done.contains(to)) continue;
      const auto before = std::find(path.begin(), path.end(), to);
      const bool closed = before != path.end();
      if (closed) path.erase(path.begin(), before);
      path.push_back(to);
      if (closed || walk(graph, path, done)) return true;
      path.pop_back();
    }
  done.insert(path.back());
  return false;
}

// A circle of folders, the first one again at its end; empty where there is none.
std::vector<std::string> circle_in(const Graph& graph) {
  std::set<std::string> done;
  for (const auto& [folder, others] : graph) {
    std::vector<std::string> path{folder};
    if (!done.contains(folder) && walk(graph, path, done)) return path;
  }
  return {};
}

// A circle with one include for each of its steps.
std::string described(const Graph& graph, const std::vector<std::string>& circle) {
  std::string text;
  for (std::size_t i = 0; i + 1 < circle.size(); ++i) {
    const Include& include = graph.at(circle[i]).at(circle[i + 1]).front();
    text += circle[i] + " -> " + circle[i + 1] + ": " + include.file + " includes " + include.target + "\n";
  }
  return text;
}

// The folders that cmake/Folders.cmake names, by the name of the list.
std::map<std::string, std::vector<std::string>> lists_of_build() {
  std::map<std::string, std::vector<std::string>> lists;
  std::string name;  // of the list that is open
  for (std::string line : lines_of("cmake/Folders.cmake")) {
    line = line.substr(0, line.find('#'));
    if (line.starts_with("set(EDDY_")) {
      name = line.substr(4, line.find(' ') - 4);
      line = line.substr(4 + name.size());
    }
    if (name.empty()) continue;
    const std::size_t end = line.find(')');
    std::istringstream words(line.substr(0, end));
    for (std::string word; words >> word;) lists[name].push_back(word);
    if (end != std::string::npos) name.clear();
  }
  return lists;
}

// The place of each of those folders in the file, from the first list to the last.
std::map<std::string, int> order_of_build() {
  std::map<std::string, int> places;
  bool open = false;
  for (std::string line : lines_of("cmake/Folders.cmake")) {
    line = line.substr(0, line.find('#'));
    open = open || line.starts_with("set(EDDY_");
    if (!open) continue;
    std::istringstream words(line.substr(0, line.find(')')));
    for (std::string word; words >> word;)
      if (!word.starts_with("set(")) places.emplace(word, static_cast<int>(places.size()));
    open = line.find(')') == std::string::npos;
  }
  return places;
}

}  // namespace

TEST_CASE("folders: no folder holds more than 30 headers and sources") {
  const std::map<std::string, int> counts = counts_below(kAll);
  CHECK(counts.size() > 50);
  for (const auto& [folder, count] : counts) CHECK_MESSAGE(count <= 30, folder << " holds " << count);
}

TEST_CASE("folders: ops and cuda and train hold at most 8 headers and sources outside of their folders") {
  std::map<std::string, int> counts = counts_below(kLibrary);
  for (const char* folder : {"ops", "cuda", "train"})
    CHECK_MESSAGE(counts[folder] <= 8, folder << " holds " << counts[folder]);
}

TEST_CASE("folders: every folder with headers or sources has a README") {
  for (const auto& [folder, count] : counts_below(kAll)) {
    if (folder.starts_with("tests/emulation/include/")) continue;  // laid out as CUDA's headers are
    CHECK_MESSAGE(fs::exists(in_tree(folder + "/README.md")), folder << "/README.md is missing");
  }
}

TEST_CASE("folders: a README links to the README of every folder below it that has no other above it") {
  for (const auto& [folder, count] : counts_below(kLibrary)) {
    fs::path above = fs::path(folder).parent_path();
    while (!above.empty() && !fs::exists(in_tree((above / "README.md").string())))
      above = above.parent_path();
    if (above.empty()) continue;
    const std::string page = (above / "README.md").string(),
                      link = "(" + fs::path(folder).lexically_relative(above).string() + "/README.md";
    bool linked = false;
    for (const std::string& line : lines_of(page)) linked = linked || line.find(link) != std::string::npos;
    CHECK_MESSAGE(linked, page << " does not link to " << folder);
  }
}

TEST_CASE("folders: the lists of cmake/Folders.cmake name the folders that hold sources and no others") {
  std::set<std::string> named;
  for (const auto& [list, folders] : lists_of_build())
    for (const std::string& folder : folders)
      CHECK_MESSAGE(named.insert(folder).second, folder << " stands in " << list << " and before it");
  for (const auto& [folder, count] : counts_below(kLibrary))
    CHECK_MESSAGE(named.erase(folder) == 1, folder << " holds sources and is in no list");
  for (const std::string& folder : named)
    CHECK_MESSAGE(false, folder << " is in a list and holds no sources");
}

TEST_CASE("folders: the lists of cmake/Folders.cmake stand in the order of the includes") {
  const std::map<std::string, int> places = order_of_build();
  CHECK(places.size() > 40);
  for (const Include& include : includes_below(kLibrary)) {
    const auto from = places.find(folder_of(include.file)), to = places.find(folder_of(include.target));
    if (!include.quoted || from == places.end() || to == places.end()) continue;
    CHECK_MESSAGE(to->second <= from->second,
                  include.file << " includes " << include.target << ", whose folder stands behind it");
  }
}

TEST_CASE("folders: a circle is found where there is one and only there") {
  const Include a_b{"a/1.h", "b/1.h", true}, b_c{"b/1.h", "b/c/1.h", true}, a_c{"a/2.h", "b/c/1.h", true},
      c_b{"b/c/1.cpp", "b/2.h", true}, c_system{"b/c/1.cpp", "a/1.h", false}, a_a{"a/1.h", "a/2.h", true};
  CHECK(circle_in(graph_of({})).empty());
  CHECK(circle_in(graph_of({a_b, b_c, a_c, c_system, a_a})).empty());
  const Graph with_circle = graph_of({a_b, b_c, a_c, c_b});
  CHECK(circle_in(with_circle) == std::vector<std::string>{"b", "b/c", "b"});
  CHECK(described(with_circle, circle_in(with_circle)) ==
        "b -> b/c: b/1.h includes b/c/1.h\nb/c -> b: b/c/1.cpp includes b/2.h\n");
}

TEST_CASE("folders: the includes between folders make no circle") {
  const Graph graph =
      graph_of(includes_below({"tensor", "autograd", "ops", "cuda", "models", "train", "examples"}));
  CHECK(graph.size() > 40);
  const std::vector<std::string> circle = circle_in(graph);
  CHECK_MESSAGE(circle.empty(), described(graph, circle));
}
