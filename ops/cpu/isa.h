// Which instruction set the CPU kernels use. Files named *.isa.cpp are compiled once for each level, in the
// namespace EDDY_ISA (isa_baseline, isa_avx2, isa_avx512), with `-O3 -fno-trapping-math -fno-math-errno`; the
// best level this processor runs is chosen when the kernels are installed.
#pragma once

namespace eddy {

enum class IsaLevel { baseline, avx2, avx512 };

// The best level that this build has and this processor runs.
IsaLevel best_isa_level();
// The level in use.
IsaLevel isa_level();
// Chooses a lower level, for tests and comparisons. errors: ValueError when the processor or the build lacks
// it.
void set_isa_level(IsaLevel level);
// "baseline", "avx2", "avx512".
const char* isa_name(IsaLevel level);

}  // namespace eddy
