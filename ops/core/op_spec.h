// One record per op: samples and a reference. Gradient checks, comparisons with the reference,
// contract tests, the benchmark against the roofline, and the table of ops in the documents are made from
// this record.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

using Tensors = std::vector<Tensor>;  // the inputs or the results of an op

// A function that returns tensors; a single one may be returned as a Tensor.
template <class... Inputs>
struct TensorsOf : std::function<Tensors(Inputs...)> {
  TensorsOf() = default;
  // `f` returns Tensors or one Tensor.
  template <class F>
  TensorsOf(F f) : std::function<Tensors(Inputs...)>([f](Inputs... x) -> Tensors { return {f(x...)}; }) {}
};
using OpFunction = TensorsOf<const Tensors&>;  // from the inputs of an op to its results

// The inputs of one call. Floating inputs are f64; tests cast them to the dtype under test (the values should
// be exact in f32). Labels in use are "odd_tail", "size_0", "strided", "broadcast", "large".
struct OpSample {
  std::string label;      // what is special about it
  Tensors inputs;         // as `run` takes them
  bool gradcheck = true;  // false if the function has a kink or a pole at these inputs
  // Whether the tolerance of an element of a result or gradient scales with its own size, and not with the
  // largest element: for elementwise ops whose results are not small by cancellation.
  bool own_size = false;
};

// What an op is: its formula, a reference, and the inputs at which all backends are tested and measured.
struct OpSpec {
  std::string name;     // as in tests: op/<name>/<label>
  std::string formula;  // for the docs table
  OpFunction run = {};  // the op under test; takes f32 or f64 inputs
  // The same in f64 without the op's kernels: plain loops, or simpler ops, which have references of their own;
  // may be empty.
  OpFunction reference = {};
  std::vector<OpSample> samples = {};
  double roundings = 4;  // that a result accumulates; the tolerance is roundings * eps * scale of the result
  TensorsOf<> bench = {};  // returns the inputs of the benchmark, which casts f64 to f32
};

// The ops of one header: a section of docs/ops.md.
struct OpGroup {
  std::string header;         // its path: "ops/views/views.h"
  std::vector<OpSpec> specs;  // in the order of the page
};

// Returns all ops, in the order of ops/op_list.h.
std::vector<OpGroup> op_groups();
std::vector<OpSpec> op_specs();

// Returns sample values: scaled normals, rounded to f32, the same at each call. Each `stream` has its own.
Tensor sample_normal(const Shape& shape, const char* stream, double scale = 1.0);
// The same, uniform in [low, high).
Tensor sample_uniform(const Shape& shape, const char* stream, double low, double high);
// The same, integers in [0, limit) as i64.
Tensor sample_indices(const Shape& shape, const char* stream, std::int64_t limit);
// Returns the same values with other strides: the last two axes are swapped in memory (rank 1: a stride of
// 2).
Tensor strided_copy(const Tensor& x);
Tensors strided_copies(const Tensors& inputs);
// Returns input i, or an undefined tensor if there are fewer inputs.
inline Tensor optional_input(const Tensors& inputs, std::size_t i) {
  return i < inputs.size() ? inputs[i] : Tensor();
}

}  // namespace eddy
