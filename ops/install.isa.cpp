// Installs every kernel of one instruction set. A new op with CPU kernels adds its line here.
#include "ops/cpu/isa.h"

namespace eddy::EDDY_ISA {

void install_pointwise();
void install_reduce();
void install_softmax();
void install_layer_norm();
void install_rms_norm();
void install_unit_norm();
void install_cross_entropy();
void install_gather();
void install_where();
void install_dropout();
void install_gates();
void install_rotary();
void install_lstm_cell();
void install_optimizer();
void install_adafactor();
void install_attention();
void install_gemm_small();
void install_packed_gemm();
void install_unit_recurrence();
void install_window_attention();

void install_all();
void install_all() {
  install_pointwise();
  install_reduce();
  install_softmax();
  install_layer_norm();
  install_rms_norm();
  install_unit_norm();
  install_cross_entropy();
  install_gather();
  install_where();
  install_dropout();
  install_gates();
  install_rotary();
  install_lstm_cell();
  install_optimizer();
  install_adafactor();
  install_attention();
  install_gemm_small();
  install_packed_gemm();
  install_unit_recurrence();
  install_window_attention();
}

}  // namespace eddy::EDDY_ISA
