// Which of its algorithms cuBLASLt takes for a product, where the choice `algorithms` is `timed` (kernel_choices.h).
//
// The library proposes some for each shape (sizes, strides, types and alignments), in the order of what it expects of
// them. Which of them is the fastest is found out before a run's first step, and stays so to its end: other algorithms
// have other bits.
//
//   while ProductTiming is alive    a product of a new shape has each proposal timed; the fastest is the shape's
//   from then on                    products of the shape run it; those of other shapes run the first proposal
#pragma once

#include <string>
#include <vector>

namespace eddy {

// The algorithms of shapes as lines: whose they are (gpu_kind in ops/backends.h), then "SHAPE: ALGORITHM" for each.
// Only the same version of the library on a GPU of the same kind can read them. Empty: of no shape.
using ProductAlgorithms = std::vector<std::string>;

// Returns the algorithms in force; none where `algorithms` is `plain`.
ProductAlgorithms product_algorithms();

// Products of these shapes take these algorithms from now on where `algorithms` is `timed`, all others the first
// proposal.
// errors: DeviceError where they cannot be had: of another GPU or version, or no such lines; then nothing has changed.
void set_product_algorithms(const ProductAlgorithms& algorithms);

// While one is alive, products find the algorithm of their shape by timing, where `algorithms` is `timed` and nothing
// is captured. A shape whose proposals cannot be timed, for want of memory, keeps the first.
class ProductTiming {
 public:
  // `known` are taken without timing. Those that cannot be had here are timed again.
  explicit ProductTiming(const ProductAlgorithms& known = {});
  ~ProductTiming();
  ProductTiming(const ProductTiming&) = delete;
  ProductTiming& operator=(const ProductTiming&) = delete;

  // Returns what is known by now.
  ProductAlgorithms known() const;
  // Returns a line on what was timed; "" if nothing was.
  std::string summary() const;
};

}  // namespace eddy
