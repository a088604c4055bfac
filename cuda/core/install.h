// The install functions of the kernels' files. Each one fills the slots of its ops for the GPU; none touches
// a GPU.
#pragma once

namespace eddy::cuda {

// Installs the whole backend: allocator, transfer and every kernel below.
void install();

void install_adafactor();
void install_attention_backward();
void install_attention_forward();
void install_cross_entropy();
void install_dropout();
void install_embedding();
void install_gates();
void install_gather();
void install_layer_norm();
void install_lstm_cell();
void install_memory_search();
void install_memory_write();
void install_optimizer();
void install_pointwise_binary();
void install_pointwise_unary();
void install_reduce();
void install_rms_norm();
void install_rotary();
void install_softmax();
void install_unit_norm();
void install_unit_recurrence();
void install_where();

}  // namespace eddy::cuda
