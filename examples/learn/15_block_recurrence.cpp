// Exercise 15: the two directions of a Block-Recurrent Transformer
//
// A stream is read in blocks of `window` tokens. Upwards, the tokens of a block read the state from before the block.
// Sideways, the state then reads the tokens of the block, and a gate mixes in what it found:
//
//   for each block:    y      = block + attend(block, state)           [batch, window, dim]
//                      state  = gate(state, attend(state, block))      [batch, states, dim]
//
// The order matters: a block that read the state after it was updated would see its own future. After the last block
// the state goes to the next batch: its numbers do, its gradient does not. In Eddy: models/block_recurrent/literal.cpp.
#include <eddy/eddy.h>
#include <cmath>
#include <vector>

using namespace eddy;

// What each row of q [batch, m, dim] reads from the rows of x [batch, n, dim].
Tensor attend(const Tensor& q, const Tensor& x) {
  const double scale = 1 / std::sqrt(static_cast<double>(x.dim(2)));
  return matmul(softmax(matmul(q, transpose(x, 1, 2)) * scale), x);
}
// Nine tenths of the old state, one of the new.
Tensor gate(const Tensor& state, const Tensor& found) {
  return state * 0.9 + found * 0.1;
}

struct Read {
  Tensor y;      // [batch, time, dim]
  Tensor state;  // [batch, states, dim], detached
};

// tokens [batch, time, dim], where time is a multiple of window.
Read read(const Tensor& tokens, Tensor state, std::int64_t window) {
  std::vector<Tensor> blocks;
  // your code: narrow(tokens, 1, start, length) is a block, concat(blocks, 1) joins them,
  // detach(state) cuts the gradient
  return {tokens, state};
}
