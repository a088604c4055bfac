// The instruction set of the CPU kernels. Files named *.isa.cpp are compiled once for each level, in the
// namespace EDDY_ISA (isa_baseline, isa_avx2, isa_avx512; on ARM64 isa_neon alone), with `-O3 -fno-trapping-math
// -fno-math-errno`. Installing the kernels chooses the best level that the processor supports.
//
// f64 is for checks, not for speed: its kernels are compiled only for the lowest level, and every level uses
// them. This saves two of three compilations of half of all kernels. A file ends with a line per kernel:
//
//   EDDY_CPU_KERNEL(softmax_forward, softmax_kernel)
//
// kernel<double> appears only inside EDDY_F64; elsewhere it would be compiled for every level.
#pragma once

#include <span>

#include "ops/core/slot.h"
#include "tensor/base/host_device.h"

namespace eddy {

// A build has those of its architecture: of ARM64 the two of NEON, of x86-64 all others, elsewhere the baseline alone.
// neon_bf16, avx512_bf16 and amx are the level before them and products in bf16 (ops/core/matmul_precision.h). Levels
// of x86-64 come last: `>= avx2` is false elsewhere.
enum class IsaLevel { baseline, neon, neon_bf16, avx2, avx512, avx512_bf16, amx };

// Returns the levels of this build's architecture, the lowest first.
std::span<const IsaLevel> isa_levels();
// Returns the best level that this build contains and this processor supports.
IsaLevel best_isa_level();
// Whether products at a level round f32 factors to bf16 where they may.
bool rounds_factors(IsaLevel level);
// Returns the best level, as best_isa_level, whose products round nothing.
IsaLevel best_exact_isa_level();
// Returns the level in use.
IsaLevel isa_level();
// Chooses a lower level, for tests and comparisons.
// errors: ValueError when the processor or the build lacks it.
void set_isa_level(IsaLevel level);
// Makes later choices of the levels amx and neon_bf16 run their matrix instructions in plain C++, or not, for tests:
// AVX512-BF16, or NEON, then suffices for the level.
void emulate_tiles(bool emulated);
// Whether these levels run so.
bool emulates_tiles();
// Returns "baseline", "neon", "neon_bf16", "avx2", "avx512", "avx512_bf16" or "amx".
const char* isa_name(IsaLevel level);
// Fills the slots with the kernels of a level; f64 kernels always come from the lowest.
void install_cpu_kernels(IsaLevel level);
// Names the function that each later choice of a level is told to: a library with kernels of its own follows it.
void follow_isa_level(void (*follow)(IsaLevel level));

// EDDY_F64(kernel) is the kernel if EDDY_ISA is that of the lowest level, or if the file is compiled only once; at
// the other levels it is null. EDDY_F64_HERE is the same test for an #if: the lowest levels alone are defined, and an
// undefined name counts as 0.
#if defined(EDDY_ISA)
#define EDDY_F64_AT_isa_baseline 1
#define EDDY_F64_AT_isa_neon 1
#define EDDY_F64_JOIN(level) EDDY_F64_AT_##level
#define EDDY_F64_AT(level) EDDY_F64_JOIN(level)
#define EDDY_F64_HERE EDDY_F64_AT(EDDY_ISA)
#endif
#if !defined(EDDY_ISA) || EDDY_F64_HERE
#define EDDY_F64(...) __VA_ARGS__
#else
#define EDDY_F64(...) nullptr
#endif

namespace detail {
// Fills the CPU kernels of a slot, one for each dtype. With a null f64 kernel the slot keeps the one that it
// has; the lowest level is always installed first.
template <class Args>
EDDY_INLINE void install_cpu(Slot<Args>& slot, typename Slot<Args>::Function f32,
                             typename Slot<Args>::Function f64) {
  static_assert(
      requires(Args args) { args.dtype; }, "a slot chooses by its arguments' dtype");
  slot.function[0] = f32;
  if (f64 != nullptr) slot.cpu_f64 = f64;
}
}  // namespace detail

}  // namespace eddy

// Kernels name what is for them alone, their arguments and slots, without the namespace.
#if defined(EDDY_ISA)
namespace eddy::EDDY_ISA {
using namespace detail;
}
#endif

// Defines the function that installs kernel<float> and kernel<double> into `name`_slot of ops/op_list.h.
#define EDDY_CPU_KERNEL(name, kernel)                                  \
  void install_##name();                                               \
  void install_##name() {                                              \
    install_cpu(name##_slot, kernel<float>, EDDY_F64(kernel<double>)); \
  }
// The same for one kernel that takes all dtypes.
#define EDDY_CPU_KERNEL_OF_ALL_DTYPES(name, kernel) \
  void install_##name();                            \
  void install_##name() {                           \
    name##_slot.function[0] = kernel;               \
  }
