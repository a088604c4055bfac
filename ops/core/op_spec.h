// One record per op. It drives the gradient check, the comparison with an independent reference, the contract
// tests, the benchmark with its share of the roofline, and the table of ops in the docs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

using Tensors = std::vector<Tensor>;
using OpFunction = std::function<Tensors(const Tensors&)>;

// Inputs of one call. Floating inputs are f64; tests cast them to the dtype under test (the values should be
// exact in f32). Label: what is special, e.g. "odd_tail", "size_0", "strided", "broadcast", "large".
struct OpSample {
  std::string label;
  Tensors inputs;
  bool gradcheck = true;  // false where the function has a kink or a pole at these inputs
};

struct OpCost {
  double flops = 0;
  double bytes = 0;  // the least that must move
};

struct OpSpec {
  std::string name;      // as in tests: op/<name>/<label>
  std::string formula;   // for the docs table
  OpFunction run;        // the op under test; takes f32 or f64 inputs
  OpFunction reference;  // the same in plain loops over f64, independent of the op's kernels; may be empty
  std::vector<OpSample> samples;
  double roundings =
      4;  // how many roundings a result collects, for tolerances: roundings * eps * scale of the result
  std::function<Tensors()> bench;              // makes the inputs of the benchmark
  std::function<OpCost(const Tensors&)> cost;  // of one forward call on such inputs
};

// All ops of this build, in the order of the docs table.
std::vector<OpSpec> op_specs();

// Values for samples: normals from a fixed stream, rounded to f32, scaled. Different `stream`s differ.
Tensor sample_normal(const Shape& shape, const char* stream, double scale = 1.0);
// Uniform in [low, high).
Tensor sample_uniform(const Shape& shape, const char* stream, double low, double high);
// Integers in [0, limit) as i64.
Tensor sample_indices(const Shape& shape, const char* stream, std::int64_t limit);
// The same values seen through other strides: the last two axes are swapped in memory (a rank of 1 gets a
// step of 2).
Tensor strided_copy(const Tensor& x);

}  // namespace eddy
