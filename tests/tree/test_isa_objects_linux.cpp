// The object files of the instruction-set levels share no symbols. An inline function that two of them both
// emit is merged by the linker, and the copy it keeps may hold instructions that the processor at hand does
// not have. So every merged (weak or unique) symbol must carry the namespace of its level.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace {

namespace fs = std::filesystem;
using eddy::test::output_of;

// The value of a key in the build's cache.
std::string cached(const std::string& key) {
  std::ifstream cache(EDDY_BINARY_DIR "/CMakeCache.txt");
  for (std::string line; std::getline(cache, line);)
    if (line.starts_with(key + ":")) return line.substr(line.find('=') + 1);
  return "";
}

// Why the build's objects do not count, or "".
std::string reason_to_skip() {
  const std::string type = cached("CMAKE_BUILD_TYPE");
  if (type != "Release" && type != "RelWithDebInfo")
    return "the build type is \"" + type + "\": inline functions stay out of line";
  if (!cached("EDDY_SANITIZE").empty()) return "the build is instrumented: " + cached("EDDY_SANITIZE");
  if (output_of("nm --version").empty()) return "there is no nm";
  return "";
}

// Whether a line of nm defines something that the linker merges: "0000 W name", V and u likewise.
bool is_merged(const std::string& line, std::string& name) {
  std::istringstream words(line);
  std::string address, kind;
  if (!(words >> address >> kind) || kind.size() != 1) return false;
  if (kind[0] != 'W' && kind[0] != 'V' && kind[0] != 'u') return false;
  std::getline(words >> std::ws, name);
  return true;
}

}  // namespace

TEST_CASE("isa objects: merged symbols carry the namespace of their level") {
  const std::string skip = reason_to_skip();
  if (!skip.empty()) {
    MESSAGE("SKIPPED: " << skip);
    return;
  }
  int objects = 0;
  for (const std::string level : {"avx2", "avx512"}) {
    const fs::path folder = fs::path(EDDY_BINARY_DIR) / "CMakeFiles" / ("eddy_" + level + ".dir");
    if (!fs::exists(folder)) {
      MESSAGE("SKIPPED: this build has no level " << level);
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      const std::string symbols = output_of("nm -C '" + entry.path().string() + "'");
      CHECK_MESSAGE(!symbols.empty(), entry.path().string());
      ++objects;
      std::istringstream lines(symbols);
      std::string name;
      for (std::string line; std::getline(lines, line);) {
        if (!is_merged(line, name)) continue;
        if (name.starts_with("DW.ref.")) continue;  // an address for exception tables, no code
        CHECK_MESSAGE(name.find("isa_" + level) != std::string::npos, entry.path().filename().string()
                                                                          << ": " << line);
      }
    }
  }
  if (fs::exists(fs::path(EDDY_BINARY_DIR) / "CMakeFiles" / "eddy_avx2.dir")) CHECK(objects > 0);
}
