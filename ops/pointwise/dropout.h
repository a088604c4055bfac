// Dropout: sets random elements to zero and scales the others up, so that the mean stays the same.
// Source: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout" (JMLR 2014), in its inverted
// form.
//
// The mask is a pure function of a RandomKey and the element's number, so it is never stored: the backward
// pass, a recomputation and another device draw it again. Elements are numbered in row-major order from
// `first_element`: the word key.word(first_element + i) decides about element i of x. A caller that splits a
// tensor passes the number of each part's first element and gets the mask of the whole.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns x[i] / (1 - p) where uniform01(key.word(first_element + i)) >= p and 0 elsewhere; x itself when p
// is 0.
// dtypes: f32, f64 and bf16.
// errors: ValueError unless 0 <= p < 1; DtypeError.
// grad: dx = dy with the same mask and scale.
Tensor dropout(const Tensor& x, double p, const RandomKey& key, std::uint64_t first_element = 0);

// Returns x times a mask that repeats along time and is the same for all sequences. The word
// key.word(((first + t) % tile) dim + d) decides whether element (b, t, d) is multiplied by 1 / (1 - p) or 0.
// shapes: x and y [batch, time, dim].
// dtypes: f32, f64 and bf16.
// errors: ValueError unless 0 <= p < 1, tile >= 1 and first >= 0; ShapeError; DtypeError.
// grad: dx = dy with the same mask and scale.
Tensor tiled_dropout(const Tensor& x, double p, const RandomKey& key, std::int64_t tile,
                     std::int64_t first = 0);

namespace detail {
// y[i] = beta y[i] + (kept(i) ? scale x[i] : 0), beta 0 or 1, over n contiguous elements numbered as above. y
// may be x; with beta 0 it is not read. The caller sets the scale: 1 / (1 - p) for dropout.
struct DropoutArgs {
  Dtype dtype;
  std::int64_t n;
  const void* x;
  void* y;
  double p;
  RandomKey key;
  std::uint64_t first_element;
  double scale;
  float beta;
};
extern Slot<DropoutArgs> dropout_slot;

// y[b, t, d] = x[b, t, d] (kept(((first + t) % tile) dim + d) ? scale : 0), all row-major. y may be x.
struct TiledDropoutArgs {
  Dtype dtype;
  std::int64_t batch, time, dim, tile, first;
  const void* x;
  void* y;
  double p;
  RandomKey key;
  double scale;
};
extern Slot<TiledDropoutArgs> tiled_dropout_slot;
}  // namespace detail

}  // namespace eddy
