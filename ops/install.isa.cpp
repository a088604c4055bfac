// Installs every kernel of one instruction set.
#include "ops/op_list.h"

namespace eddy::EDDY_ISA {

#define EDDY_DECLARE(Args, name) void install_##name();
EDDY_ISA_KERNELS(EDDY_DECLARE)
EDDY_CPU_KERNELS(EDDY_DECLARE)
void install_gemm_small();
void install_packed_gemm();

void install_all();
void install_all() {
#define EDDY_INSTALL(Args, name) install_##name();
  EDDY_ISA_KERNELS(EDDY_INSTALL)
  EDDY_CPU_KERNELS(EDDY_INSTALL)
  install_gemm_small();
  install_packed_gemm();
}

}  // namespace eddy::EDDY_ISA
