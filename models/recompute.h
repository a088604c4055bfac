// What a training step computes again in its backward pass instead of keeping it (train.recompute).
//
//   none     nothing: a step keeps all its activations
//   layer    a call of a layer keeps its inputs, and computes its activations again
//   block    so does, besides, each turn of the model's loop over the sequence, inside a layer or around the layers:
//
//              block_forget, block_accumulate       a block of a layer
//              block_recurrent, memorizing          a cell of a layer, if some layers recur; with feedback a block of
//                                                   all layers
//              memory_llama                         a chunk of a layer
//              staircase, cached_staircase          a step of all layers
//              feedback                             a token of all layers
//              lstm                                 a token of a layer
//
// A layer is called for all tokens of a segment, or, if the loop is around the layers, for those of a turn. The other
// models have no such loop, or do it by one op: `block` is an error there (Model::check_recompute). Where a GPU runs
// the loop over blocks as one kernel, `block` does what `layer` does. Gradients are the same to the bit.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (arXiv 1604.06174).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/value_names.h"
#include "tensor/tensor.h"

namespace eddy {

// A value of train.recompute.
enum class Recompute { none, layer, block };
// Their names.
template <>
struct ValueNames<Recompute> {
  // In the order of the values.
  static constexpr const char* all[] = {"none", "layer", "block"};
};

// The one of this name.
// errors: ConfigError.
Recompute recompute_named(const std::string& name);

// Returns fn(inputs). If `again`, it is recorded as a checkpoint (autograd/checkpoint.h has the rules for fn), whose
// products go on to share the packed weights of the loop around it.
std::vector<Tensor> recomputed(bool again, std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                               const std::vector<Tensor>& inputs);
// The same for a function with one result.
Tensor recomputed(bool again, std::function<Tensor(const std::vector<Tensor>&)> fn,
                  const std::vector<Tensor>& inputs);

}  // namespace eddy
