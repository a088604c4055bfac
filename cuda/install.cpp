// Installs the GPU backend. A new op with kernels for the GPU adds its line here and in core/install.h.
#include "cuda/core/install.h"

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/gemm.h"
#include "cuda/views/transfer.h"

namespace eddy::cuda {

void install() {
  set_allocator(DeviceType::cuda, &device_allocator());
  set_transfer(DeviceType::cuda, &device_transfer());
  install_gemm();
  install_pointwise_unary();
  install_pointwise_binary();
  install_where();
  install_reduce();
  install_softmax();
  install_layer_norm();
  install_rms_norm();
  install_cross_entropy();
  install_embedding();
  install_gather();
  install_dropout();
  install_optimizer();
  install_attention_forward();
  install_attention_backward();
  install_rotary();
  install_unit_norm();
  install_gates();
  install_lstm_cell();
  install_unit_recurrence();
  install_adafactor();
  install_memory_search();
  install_memory_write();
}

}  // namespace eddy::cuda
