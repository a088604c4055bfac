// READ THIS FIRST: memory attention as the paper writes it, one chunk X of one layer. `forward` (memory.cpp)
// calls it for every chunk, and for every layer in it; M is the layer's memory, `chunk` (C) rows.
//
//   X  = Norm(x)                                    the chunk's rows of the residual stream x
//   U  = M + MLP_m(Norm_a(M)),  E = Norm_b(U)       equation 2: the memory evolves; Norm_a as in the code
//   K  = [E Wkm; X Wk],  V = [E Wvm; X Wv]          equation 3, memory first; Q = X Wq
//   O  = softmax(rot(Q) rot(K)^T / sqrt(head_dim)) V
//                                                   a token sees the memory and its chunk up to itself;
//                                                   rot: positions 0 .. C-1 for the memory, C .. 2C-1 for X
//   M' = O                                          equation 5: the next memory, before Wo
//   h  = x + O Wo;  y = h + MLP(Norm(h))            the layer continues as in Llama
//
// M' of a segment's last chunk is a constant in the next segment (detach = "chunk": of every chunk). The
// paper's queries of memory rows (W_qm) do not reach any output and are left out.
//
// llama and llama_window have no recurrence and one form only: CausalLlama::forward in
// blockwise_recurrent.cpp.
//
// ForwardInput::literal runs this file. The fast form is run_fast in memory.cpp; tests compare the two.
// With dropout they draw different masks.
// Source: Liang, "Block-wise Recurrent Transformer", and its published code.
#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "ops/ops.h"

namespace eddy {

Tensor MemoryLlama::run_literal(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop,
                                std::uint64_t chunk, Tensor& memory) const {
  const ScopeGuard scope(layer.path);
  const Tensor evolved = layer.memory->evolve(memory, drop, chunk), rows = layer.attn_norm(x);
  const KeyValue read = layer.memory_rows(evolved);
  const Tensor query = rotary_bthd(layer.query(rows), config().chunk, config().rope_theta),
               key = rotary_bthd(concat({read.key, layer.key(rows)}, 1), 0, config().rope_theta),
               value = concat({read.value, layer.value(rows)}, 1);
  const Tensor output = layer.attend(query, key, value, layer.chunk_attention(drop, chunk));
  if (x.dim(1) == config().chunk) {
    memory = reshape(output, x.shape());
    name_value("state", memory);
    if (value_is(config().detach, blockwise_recurrent::Detach::chunk)) memory = detach(memory);
  }
  return layer.finish(x, output, drop, chunk);
}

}  // namespace eddy
