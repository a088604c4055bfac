// An operator new that fails when a test says so. One file of a test program includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace eddy::test {

// So many allocations of this thread succeed before one fails; below 0: none fails.
inline thread_local std::int64_t allocations_left = -1;

// Calls `run` with its first, second, ... allocation failing, and `check` after each failure, until one call succeeds.
// Returns how many failed.
template <class Run, class Check>
std::int64_t fail_each_allocation(const Run& run, const Check& check) {
  for (std::int64_t failing = 0;; ++failing) {
    allocations_left = failing;
    try {
      run();
      allocations_left = -1;
      return failing;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      check();
    }
  }
}

}  // namespace eddy::test

void* operator new(std::size_t bytes) {
  if (eddy::test::allocations_left == 0) throw std::bad_alloc();
  if (eddy::test::allocations_left > 0) --eddy::test::allocations_left;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
