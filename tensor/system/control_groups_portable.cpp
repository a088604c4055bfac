// Other systems have no control groups.
#include "tensor/system/control_groups.h"

namespace eddy {

std::vector<ControlGroup> control_groups(const std::string& /*controller*/, const std::string& /*root*/) {
  return {};
}

}  // namespace eddy
