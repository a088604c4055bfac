// Weights that come again: in a loop over time the same few matrices are multiplied with a few rows at every
// step. OpenBLAS packs a factor anew at every call, which for few rows is most of the work. While a
// RepeatedProducts lives, `linear` and `linear_relu` on the CPU pack a weight at its first product and
// multiply from the panels (ops/product/packed_gemm.h) at all others, backward too.
//
// GFLOP/s of x W^T without and with panels, f32, one core of an AMD EPYC with AVX-512, OpenBLAS 0.3.21
// (2026-11-22), at 4 / 16 / 64 / 256 rows: 768 -> 3072 120 : 124, 94 : 234, 168 : 240, 203 : 236;
// 256 -> 1024 133 : 129, 87 : 220, 159 : 230, 128 : 230. Packing costs what reading and writing the weight
// does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "tensor/tensor.h"

namespace eddy {

// The panels of the weights of one loop, which take as much memory as the weights, twice with a backward
// pass: what is recorded on the tape holds on to them as long as it lives.
class PackedWeights {
 public:
  // The panels for products of `rows` rows with b [inner, columns], a matrix or its transposed view; null
  // where such a product is better made from b itself: on a GPU, of bf16, of many rows.
  const void* panels_for(const Tensor& b, std::int64_t rows);

 private:
  struct Panels {
    Tensor source;  // keeps the memory whose address is the key
    std::uint32_t version;
    Tensor panels;
  };
  // Address, inner, columns, strides.
  using Key = std::tuple<const void*, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, Panels> packed_;
};

// Products on this thread go by panels while one of these lives, where weights come `times` times, or so: for
// a few times nothing is packed. They nest: the outermost one counts.
class RepeatedProducts {
 public:
  explicit RepeatedProducts(std::int64_t times);
  ~RepeatedProducts();
  RepeatedProducts(const RepeatedProducts&) = delete;
  RepeatedProducts& operator=(const RepeatedProducts&) = delete;

  // Those of this thread; null when none lives.
  static const std::shared_ptr<PackedWeights>& current();

 private:
  bool counts_;
};

}  // namespace eddy
