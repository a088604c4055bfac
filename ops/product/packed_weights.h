// Packed weights for loops: each step of a loop over time multiplies the same few weights by a few rows.
// OpenBLAS packs an operand again at every call, which for few rows is most of the work. While an object of
// PackedWeightScope exists, `linear` on the CPU packs a weight at its first product and reuses the panels
// (packed_gemm.h) in all others, also in the backward.
//
// Packing costs as much as reading and writing the weight. With 4 rows x W^T gains nothing, with 16 it is more than
// twice as fast (docs/choices.md).
//
// Products that round their factors to bf16 (ops/core/matmul_precision.h) always pack the right one. The panels of
// parameters then stay with their buffer until the next write to it (ops/core/parameter_cache.h), one form for x W^T
// and one for dy W.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "ops/core/matmul_precision.h"
#include "tensor/tensor.h"

namespace eddy {

// The packed weights of one loop, or of one buffer of parameters. They take as much memory as the weights, or
// twice as much if there is a backward pass. The recorded tape keeps those of a loop alive.
class PackedWeights : public RefCounted {
 public:
  // Whether the memory of packed matrices is kept too, whose address identifies them. A buffer's own panels must not
  // keep it: they go with it.
  enum class Keeps { sources, no_sources };
  explicit PackedWeights(Keeps keeps = Keeps::sources) : keeps_(keeps) {}

  // Returns those to use for products with b: the buffer's where products round to bf16 and b is a parameter, else
  // `of_loop`, which may be null.
  static PackedWeights* of(const Tensor& b, PackedWeights* of_loop, MatmulPrecision precision);

  // Returns the panels for products of `rows` rows with b [inner, columns], a matrix or its transposed view;
  // null if the product should read b itself: on a GPU, in bf16, or with many rows.
  const void* panels_for(const Tensor& b, std::int64_t rows, MatmulPrecision precision);

 private:
  struct Panels {
    Tensor source;  // undefined without sources
    std::uint32_t version;
    const void* packer;  // of the kernels that the panels are for
    Tensor panels;
  };
  // Address, inner, columns, strides.
  using Key = std::tuple<const void*, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, Panels> packed_;
  Keeps keeps_;
};

// While an object exists, products on this thread use panels. `times` says about how often each weight is
// used; if only a few times, nothing is packed. Objects can nest; the outermost one counts.
class PackedWeightScope {
 public:
  explicit PackedWeightScope(std::int64_t times);
  // Goes on with the packed weights of a loop, for what is computed again after it; null: there was none.
  explicit PackedWeightScope(std::shared_ptr<PackedWeights> of_loop);
  ~PackedWeightScope();
  PackedWeightScope(const PackedWeightScope&) = delete;
  PackedWeightScope& operator=(const PackedWeightScope&) = delete;

  // The packed weights of this thread; null outside any PackedWeightScope.
  static const std::shared_ptr<PackedWeights>& current();

 private:
  bool counts_;
};

}  // namespace eddy
