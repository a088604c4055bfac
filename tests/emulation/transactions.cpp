// Barriers of phases (mbarrier) and copies of boxes (TMA): a copy comes at any time between its start and the wait for
// its barrier's phase. Until then its place holds NaN, so what is read too early or overwritten too early gives wrong
// numbers.
#include <cstring>
#include <map>
#include <vector>

#include "tests/emulation/include/cuda_runtime.h"
#include "tests/emulation/tensor_map.h"
#include "tests/emulation/together.h"

namespace emulation {
namespace {

struct Phases {
  int arrivals, missing;
  std::int64_t bytes = 0;  // announced and not yet there
  std::int64_t over = 0;   // phases
  unsigned by = 0;         // the thread that prepared it
  bool published = false;
};
struct BoxCopy {
  char* to;
  std::uint64_t address;  // of `to`, in shared memory
  EncodedMap map;
  std::int32_t at[4];
  void* barrier;
};

std::map<const void*, Phases>& barriers() {
  static std::map<const void*, Phases> all;
  return all;
}
std::vector<BoxCopy>& copies() {
  static std::vector<BoxCopy> all;
  return all;
}

bool in_shared(const void* start, std::int64_t bytes) {
  const std::int64_t at = static_cast<const char*>(start) - static_cast<const char*>(shared_memory());
  return at >= 0 && bytes <= shared_bytes() - at;
}

Phases& barrier_at(const void* barrier) {
  const auto found = barriers().find(barrier);
  if (found == barriers().end()) stop("a barrier of phases that nobody prepared");
  if (!found->second.published && found->second.by != threadIdx.x)
    stop("a barrier of phases is used before its thread published it");
  return found->second;
}

void end_phase(Phases& phases) {
  if (phases.missing > 0 || phases.bytes != 0) return;
  ++phases.over;
  phases.missing = phases.arrivals;
}

void complete(const BoxCopy& copy) {
  each_of_box(copy.map, copy.at, [&](std::uint32_t place, std::uint64_t address) {
    char* const to = copy.to + (swizzled(copy.address + place) - copy.address);
    if (address == 0)
      std::memset(to, 0, 2);
    else
      std::memcpy(to, reinterpret_cast<const char*>(address), 2);
  });
  Phases& phases = barriers().at(copy.barrier);
  phases.bytes -= copy.map.box_bytes();
  if (phases.bytes < 0) stop("a copy brings bytes that no arrival announced");
  end_phase(phases);
}

}  // namespace

void init_phases(void* barrier, int arrivals) {
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0 || !in_shared(barrier, 8) || arrivals < 1)
    stop("a barrier of phases is not 8 aligned bytes of shared memory, or waits for nobody");
  if (!barriers().try_emplace(barrier, Phases{arrivals, arrivals, 0, 0, threadIdx.x, false}).second)
    stop("a barrier of phases is prepared twice");
}

void publish_phases() {
  for (auto& [barrier, phases] : barriers()) phases.published |= phases.by == threadIdx.x;
}

void arrive_at_phase(void* barrier, std::int64_t bytes) {
  Phases& phases = barrier_at(barrier);
  if (phases.missing == 0) stop("more arrivals at a phase than its barrier waits for");
  phases.bytes += bytes;
  --phases.missing;
  end_phase(phases);
}

void wait_for_phase(void* barrier, int parity) {
  const Phases& phases = barrier_at(barrier);
  const std::function<bool()> over = [&] { return (phases.over & 1) != parity; };
  if (!over()) wait_until(over);
}

void start_box_copy(void* to, std::uint64_t address, const void* map, const int (&at)[4], void* barrier) {
  BoxCopy copy{static_cast<char*>(to), address, {}, {at[0], at[1], at[2], at[3]}, barrier};
  std::memcpy(&copy.map, map, sizeof copy.map);
  if (copy.map.magic != EncodedMap::kMagic) stop("a copy by what is not a map of a tensor");
  if (address % 1024 != 0 || !in_shared(to, copy.map.box_bytes()))
    stop("a copy of a box does not go to a multiple of 1,024 bytes of shared memory, or past its end");
  if (!barrier_at(barrier).published) stop("a copy counts at a barrier that was not published");
  std::memset(to, 0xff, copy.map.box_bytes());
  copies().push_back(copy);
}

bool complete_copy(std::uint32_t which) {
  if (copies().empty()) return false;
  const auto chosen = copies().begin() + which % copies().size();
  const BoxCopy copy = *chosen;
  copies().erase(chosen);
  complete(copy);
  return true;
}

void end_of_phases() {
  if (!copies().empty()) stop("a block ends while copies of boxes are on their way");
  for (const auto& [barrier, phases] : barriers())
    if (phases.bytes != 0) stop("a block ends, and a barrier waits for bytes that no copy brings");
  barriers().clear();
}

}  // namespace emulation
