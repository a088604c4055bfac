// /proc/self/cgroup names the groups, /proc/self/mountinfo where they are found (proc(5)).
#include "tensor/system/control_groups.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace eddy {
namespace {

struct Mount {
  std::string root, folder;  // the group at its top, and where that is
  bool version_2;
};

bool lists(const std::string& words, std::string_view word) {
  std::istringstream parts(words);
  for (std::string part; std::getline(parts, part, ',');)
    if (part == word) return true;
  return false;
}

// Replaces \040 and the like, which stand for blanks.
std::string plain(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size();
    result += escaped ? static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8)) : text[i];
    if (escaped) i += 3;
  }
  return result;
}

// The places of the groups of a controller.
std::vector<Mount> mounts(const std::string& controller, const std::string& root) {
  std::vector<Mount> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = line.find(" - ");
    if (end == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(end + 3));
    std::string skipped, top, folder, type, source, options;
    before >> skipped >> skipped >> skipped >> top >> folder;
    after >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && lists(options, controller)))
      found.push_back({plain(top), plain(folder), type == "cgroup2"});
  }
  return found;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  const std::vector<Mount> places = mounts(controller, root);
  std::vector<ControlGroup> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:GROUP
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    for (const Mount& mount : places) {
      if (mount.version_2 ? !controllers.empty() : !lists(controllers, controller)) continue;
      // Inside a container the mount may begin at the group itself, or the group lie outside of it.
      const std::string top = mount.root == "/" ? "" : mount.root;
      const bool inside = path.starts_with(top + "/") && path.find("/..") == std::string::npos;
      std::string group = inside ? path.substr(top.size()) : "";
      while (group.ends_with("/")) group.pop_back();
      for (;; group.erase(group.rfind('/'))) {
        found.push_back({root + mount.folder + group, mount.version_2});
        if (group.empty()) break;
      }
    }
  }
  return found;
}

}  // namespace eddy
