// Which instruction set is there, and the installing of its kernels into the slots.
#if defined(EDDY_X86_LEVELS)
#include <cpuid.h>
#endif

#include <atomic>

#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "tensor/system/processors.h"

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
std::atomic<bool> emulated_tiles{false};
std::atomic<void (*)(IsaLevel)> follower{nullptr};

#if defined(EDDY_X86_LEVELS)
// Whether the processor has bf16 tiles and the system lets this process use them: it is asked once.
bool has_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;  // of leaf 7
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTiles) == 0) return false;
  return allow_amx_tiles();
}
#endif

}  // namespace

void install_cpu_kernels(IsaLevel level) {
  isa_baseline::install_all();  // brings the f64 kernels of all levels
  switch (level) {
#if defined(EDDY_X86_LEVELS)
    case IsaLevel::avx512:
    case IsaLevel::avx512_bf16:
    case IsaLevel::amx:
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
  if (const auto follow = follower.load()) follow(level);
}

void follow_isa_level(void (*follow)(IsaLevel level)) {
  follower.store(follow);
}

IsaLevel best_isa_level() {
#if defined(EDDY_X86_LEVELS)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    static const bool amx = has_amx();
    return __builtin_cpu_supports("avx512bf16") <= 0 ? IsaLevel::avx512
           : amx                                     ? IsaLevel::amx
                                                     : IsaLevel::avx512_bf16;
  }
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
  const IsaLevel best = best_isa_level();
  const bool emulates = level == IsaLevel::amx && best == IsaLevel::avx512_bf16 && emulates_tiles();
  if (static_cast<int>(level) > static_cast<int>(best) && !emulates)
    fail<ValueError>("cpu level: {} does not run here (the best is {})", isa_name(level), isa_name(best));
  install_backends();
  install_cpu_kernels(level);
}

void emulate_tiles(bool emulated) {
  emulated_tiles.store(emulated);
}

bool emulates_tiles() {
  return emulated_tiles.load(std::memory_order_relaxed);
}

bool rounds_to_bf16(MatmulPrecision precision) {
  return precision == MatmulPrecision::bf16 && isa_level() >= IsaLevel::avx512_bf16;
}

const char* isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::baseline:
      return "baseline";
    case IsaLevel::avx2:
      return "avx2";
    case IsaLevel::avx512:
      return "avx512";
    case IsaLevel::avx512_bf16:
      return "avx512_bf16";
    case IsaLevel::amx:
      return "amx";
  }
  return "?";
}

}  // namespace eddy
