// The texts, and how many of them were taken.
#include "ops/core/warnings.h"

#include <algorithm>
#include <mutex>

namespace eddy {
namespace {

struct Notices {
  std::mutex mutex;
  std::vector<std::string> all;
  std::size_t taken = 0;
};

Notices& notices() {
  static Notices all;
  return all;
}

}  // namespace

void give_notice(const std::string& text) {
  Notices& n = notices();
  const std::lock_guard lock(n.mutex);
  if (std::find(n.all.begin(), n.all.end(), text) == n.all.end()) n.all.push_back(text);
}

std::vector<std::string> take_notices() {
  Notices& n = notices();
  const std::lock_guard lock(n.mutex);
  const std::size_t first = n.taken;
  n.taken = n.all.size();
  return {n.all.begin() + static_cast<std::ptrdiff_t>(first), n.all.end()};
}

void forget_notices() {
  Notices& n = notices();
  const std::lock_guard lock(n.mutex);
  n.all.clear();
  n.taken = 0;
}

}  // namespace eddy
