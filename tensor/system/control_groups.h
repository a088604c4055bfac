// The control groups of Linux that this process is in, as `docker run`, Kubernetes or a batch system set them, and
// their parents: each of them may limit processors or memory.
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
#pragma once

#include <string>
#include <vector>

namespace eddy {

struct ControlGroup {
  std::string folder;  // with the files of its limits
  bool version_2;
};

// Returns the groups that may limit what a controller ("cpu", "memory") controls. Files that cannot be read give none.
// `root` stands in front of all paths.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = "");

}  // namespace eddy
