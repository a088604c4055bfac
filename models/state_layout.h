// The declaration of a model's state: the tensors that it consists of. A state that comes from outside is checked
// against it (Model::check_state), and one of zeros is made by it (Model::zeros_of).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// One tensor of a state.
struct StateTensor {
  // What its numbers are.
  enum class Kind {
    values,  // in the dtype of the parameters, or bf16: what layers read is carried as they read it
    rows,    // in the dtype of activations: a stream writes them in place
    count    // i64 or i32: counters
  };

  std::string name;                       // in the State
  Shape shape;                            // on growing_axis the least size
  Kind kind = Kind::values;               // what its numbers are
  bool optional = false;                  // whether a state may lack it
  int batch_axis = 0, growing_axis = -1;  // -1: no axis grows
  std::vector<std::int64_t> most{};       // of each counter; counters are never negative
};

// The tensors of a state.
using StateLayout = std::vector<StateTensor>;

// x with the rows of flagged sequences taken from `initial`, which is cast to its dtype.
// shapes: flags u8 [batch], not 0 for such rows; x [batch, ...]; initial as x, or 1 on any axis.
Tensor restart_rows(const Tensor& x, const Tensor& initial, const Tensor& flags);

}  // namespace eddy
