// Which instruction set is there, and the installing of its kernels into the slots.
#include <atomic>

#include "ops/core/slot.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"

namespace eddy {
namespace isa_baseline {
void install_all();
}
#if defined(EDDY_X86_LEVELS)
namespace isa_avx2 {
void install_all();
}
namespace isa_avx512 {
void install_all();
}
#endif

namespace {

std::atomic<int> chosen{-1};

}  // namespace

void install_cpu_kernels(IsaLevel level) {
  isa_baseline::install_all();  // brings the f64 kernels of all levels
  switch (level) {
#if defined(EDDY_X86_LEVELS)
    case IsaLevel::avx512:
      isa_avx512::install_all();
      break;
    case IsaLevel::avx2:
      isa_avx2::install_all();
      break;
#endif
    default:
      break;
  }
  chosen.store(static_cast<int>(level));
}

IsaLevel best_isa_level() {
#if defined(EDDY_X86_LEVELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return IsaLevel::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    return IsaLevel::avx2;
#endif
  return IsaLevel::baseline;
}

IsaLevel isa_level() {
  install_backends();
  return static_cast<IsaLevel>(chosen.load());
}

void set_isa_level(IsaLevel level) {
  if (static_cast<int>(level) > static_cast<int>(best_isa_level()))
    fail<ValueError>("cpu level: {} does not run here (the best is {})", isa_name(level),
                     isa_name(best_isa_level()));
  install_backends();
  install_cpu_kernels(level);
}

const char* isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::baseline:
      return "baseline";
    case IsaLevel::avx2:
      return "avx2";
    case IsaLevel::avx512:
      return "avx512";
  }
  return "?";
}

}  // namespace eddy
