// Which instruction set is there, and the installing of its kernels into the slots.
#if defined(EDDY_X86_LEVELS)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "tensor/system/processors.h"

namespace eddy {
#if defined(EDDY_ARM64_LEVELS)
namespace isa_neon {
void install_all();
}
#else
namespace isa_baseline {
void install_all();
}
#endif
#if defined(EDDY_X86_LEVELS)
namespace isa_avx2 {
void install_all();
}
namespace isa_avx512 {
void install_all();
}
#endif

namespace {

#if defined(EDDY_X86_LEVELS)
constexpr IsaLevel kLevels[] = {IsaLevel::baseline, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::avx512_bf16,
                                IsaLevel::amx};
#elif defined(EDDY_ARM64_LEVELS)
constexpr IsaLevel kLevels[] = {IsaLevel::neon, IsaLevel::neon_bf16};
#else
constexpr IsaLevel kLevels[] = {IsaLevel::baseline};
#endif

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
#if defined(EDDY_ARM64_LEVELS)
  isa_neon::install_all();
#else
  isa_baseline::install_all();  // brings the f64 kernels of all levels
#endif
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

std::span<const IsaLevel> isa_levels() {
  return kLevels;
}

bool rounds_factors(IsaLevel level) {
  return level == IsaLevel::neon_bf16 || level >= IsaLevel::avx512_bf16;
}

IsaLevel best_exact_isa_level() {
  const IsaLevel best = best_isa_level();
  if (!rounds_factors(best)) return best;
  return best == IsaLevel::neon_bf16 ? IsaLevel::neon : IsaLevel::avx512;
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
#elif defined(EDDY_ARM64_LEVELS)
  static const bool bf16 = has_bf16_matrices();
  if (bf16) return IsaLevel::neon_bf16;
#endif
  return kLevels[0];
}

IsaLevel isa_level() {
  install_backends();
  return static_cast<IsaLevel>(chosen.load());
}

void set_isa_level(IsaLevel level) {
  if (std::find(std::begin(kLevels), std::end(kLevels), level) == std::end(kLevels)) {
    std::string names;
    for (const IsaLevel here : kLevels)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", isa_name(here));
    fail<ValueError>("cpu level: {} is one of another architecture (one of {})", isa_name(level), names);
  }
  const IsaLevel best = best_isa_level();
  const bool emulates = emulates_tiles() && (level == IsaLevel::neon_bf16 ||
                                             (level == IsaLevel::amx && best == IsaLevel::avx512_bf16));
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
  return precision == MatmulPrecision::bf16 && rounds_factors(isa_level());
}

const char* isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::baseline:
      return "baseline";
    case IsaLevel::neon:
      return "neon";
    case IsaLevel::neon_bf16:
      return "neon_bf16";
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
