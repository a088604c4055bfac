// The list of warnings, and how many of them were taken.
#include "ops/core/warnings.h"

#include <algorithm>
#include <mutex>

namespace eddy {
namespace {

struct WarningList {
  std::mutex mutex;
  std::vector<std::string> texts;
  std::size_t taken = 0;
};

WarningList& warning_list() {
  static WarningList list;
  return list;
}

}  // namespace

void add_warning(const std::string& text) {
  WarningList& warnings = warning_list();
  const std::lock_guard lock(warnings.mutex);
  if (std::find(warnings.texts.begin(), warnings.texts.end(), text) == warnings.texts.end())
    warnings.texts.push_back(text);
}

std::vector<std::string> take_warnings() {
  WarningList& warnings = warning_list();
  const std::lock_guard lock(warnings.mutex);
  const std::size_t first = warnings.taken;
  warnings.taken = warnings.texts.size();
  return {warnings.texts.begin() + static_cast<std::ptrdiff_t>(first), warnings.texts.end()};
}

void reset_warnings() {
  WarningList& warnings = warning_list();
  const std::lock_guard lock(warnings.mutex);
  warnings.texts.clear();
  warnings.taken = 0;
}

}  // namespace eddy
