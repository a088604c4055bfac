// /proc/self/cgroup names the groups, /proc/self/mountinfo where they are found (proc(5)).
#include "tensor/threads/cpu_quota.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

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

// The places of the groups that can limit processors.
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = line.find(" - ");
    if (end == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(end + 3));
    std::string skipped, top, folder, type, source, options;
    before >> skipped >> skipped >> skipped >> top >> folder;
    after >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && lists(options, "cpu")))
      found.push_back({plain(top), plain(folder), type == "cgroup2"});
  }
  return found;
}

// The processors' worth of time that one group allows; infinite without a quota.
double allowance(const std::string& group, bool version_2) {
  double quota = 0, period = 0;
  if (version_2) {
    std::ifstream(group + "/cpu.max") >> quota >> period;  // "max 100000" leaves zeros
  } else {
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;  // -1: none
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

int cpu_quota_threads(const std::string& root) {
  const std::vector<Mount> places = mounts(root);
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:GROUP
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    for (const Mount& mount : places) {
      if (mount.version_2 ? !controllers.empty() : !lists(controllers, "cpu")) continue;
      // Inside a container the mount may begin at the group itself, or the group lie outside of it.
      const std::string top = mount.root == "/" ? "" : mount.root;
      const bool inside = path.starts_with(top + "/") && path.find("/..") == std::string::npos;
      std::string group = inside ? path.substr(top.size()) : "";
      while (group.ends_with("/")) group.pop_back();
      for (;; group.erase(group.rfind('/'))) {
        least = std::min(least, allowance(root + mount.folder + group, mount.version_2));
        if (group.empty()) break;
      }
    }
  }
  if (least > std::numeric_limits<int>::max()) return 0;
  return std::max(1, static_cast<int>(least));
}

}  // namespace eddy
