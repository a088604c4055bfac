// A library that takes SIGHUP as it is loaded, before main, as UCX does, which Open MPI 5 loads.
#include <csignal>

namespace {

[[gnu::constructor]] void take_hangup() {
  std::signal(SIGHUP, [](int) {});
}

}  // namespace
