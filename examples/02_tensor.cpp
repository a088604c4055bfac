// Example 2: tensors. What a handle is, what a view is, how broadcasting works, and how errors and random
// numbers behave.
// Read beside it: tensor/tensor.h, tensor/shape.h, tensor/base/error.h, tensor/random/philox.h,
// ops/views/views.h.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tensor/random/philox.h"

using eddy::Tensor;

namespace {

int failures = 0;

void expect(bool ok, const char* what) {
  std::printf("%-6s %s\n", ok ? "ok" : "WRONG", what);
  if (!ok) ++failures;
}

void print(const char* name, const Tensor& x) {
  std::printf("       %s %s:", name, to_string(x.shape()).c_str());
  for (const float value : x.to_vector<float>()) std::printf(" %g", static_cast<double>(value));
  std::printf("\n");
}

// A tensor is one pointer to {buffer, offset, shape, strides, dtype}. A copy of the handle is the same
// tensor; a view has another shape and other strides over the same bytes.
void handles_and_views() {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  print("x", x);
  const Tensor xt = eddy::transpose(x, 0, 1);
  print("x^T", xt);
  expect(xt.raw_data() == x.raw_data(), "a transpose moves no byte");
  expect(xt.strides()[0] == 1 && xt.strides()[1] == 3, "its strides are those of x, swapped");
  expect(x.contiguous() && !xt.contiguous(), "its elements do not lie in row-major order any more");

  // Writing through one handle shows through the others. Only untracked tensors may be written in place.
  x.mutable_data<float>()[0] = 10;
  expect(xt.to_vector<float>()[0] == 10, "a view sees what is written to the tensor it came from");

  const Tensor column = eddy::narrow(x, 1, 1, 1);
  print("x[:, 1:2]", column);
  expect(column.offset() == 1, "a part of an axis is an offset and a smaller size");
}

// Elementwise ops repeat axes of size 1; shapes align at the last axis. There is no other implicit
// conversion: no dtype is promoted.
void broadcasting() {
  const Tensor rows = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const Tensor columns = Tensor::from(std::vector<float>{10, 20}, {2, 1});
  const Tensor table = columns + rows;
  print("[2, 1] + [3]", table);
  expect(table.to_vector<float>() == std::vector<float>({11, 12, 13, 21, 22, 23}), "sizes of 1 repeat");

  const Tensor product = eddy::matmul(table, eddy::transpose(table, 0, 1));
  print("table table^T", product);
  expect(product.to_vector<float>() == std::vector<float>({434, 794, 794, 1454}), "a product of matrices");
  expect(eddy::sum(table).item() == 102, "the sum of all elements is a tensor of rank 0; item() reads it");
}

// Errors are typed, and their text names the op, the values and the rule.
template <class Expected, class Action>
void expect_error(const char* what, Action&& action) {
  std::string text = "nothing was thrown";
  try {
    static_cast<void>(action());
    expect(false, what);
  } catch (const Expected& error) {
    text = error.what();
    expect(true, what);
  }
  std::printf("       %s\n", text.c_str());
}

void errors() {
  const Tensor x = Tensor::zeros({2, 3});
  expect_error<eddy::ShapeError>("sizes that do not fit", [&] { return eddy::matmul(x, x); });
  expect_error<eddy::DtypeError>("dtypes that differ", [&] {
    return x + Tensor::zeros({2, 3}, eddy::Dtype::f64);
  });
  expect_error<eddy::ShapeError>("a part outside of its axis", [&] { return eddy::narrow(x, 1, 2, 5); });
}

// Random number i of a stream is a function of (seed, stream name, step, i). There is no generator with
// hidden state, so the order of the draws does not matter, and a dropout mask never has to be stored.
void randomness() {
  const eddy::RandomKey key = eddy::random_key(1337, "example.noise", 0);
  const float third = eddy::uniform01(key.word(2));
  std::printf("       words 0..3 of stream example.noise:");
  for (std::uint64_t i = 0; i < 4; ++i)
    std::printf(" %.4f", static_cast<double>(eddy::uniform01(key.word(i))));
  std::printf("\n");
  expect(eddy::uniform01(key.word(2)) == third,
         "the same key and element give the same number, in any order");
  const eddy::RandomKey next_step = eddy::random_key(1337, "example.noise", 1);
  expect(next_step.word(2) != key.word(2), "another step gives other numbers");
}

}  // namespace

int main() try {
  handles_and_views();
  broadcasting();
  errors();
  randomness();
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
