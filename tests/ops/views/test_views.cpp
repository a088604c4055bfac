// Views, their gradients and the differentiable cast.
#include "ops/views/views.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "autograd/tape.h"
#include "ops/cast/cast.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

using Doubles = std::vector<double>;

}  // namespace

TEST_CASE("reshape finds the size that is left open") {
  const Tensor x = counted({2, 3, 4});
  CHECK(reshape(x, {6, -1}).shape() == Shape({6, 4}));
  CHECK(reshape(x, {-1}).shape() == Shape({24}));
  CHECK(reshape(x, {2, -1, 12}).shape() == Shape({2, 1, 12}));
  CHECK(reshape(Tensor::zeros({0, 5}), {-1, 5}).shape() == Shape({0, 5}));
  CHECK(reshape(Tensor::zeros({1}), {}).rank() == 0);
}

TEST_CASE("reshape refuses sizes that do not fit") {
  const Tensor x = counted({2, 3});
  CHECK(contains(error_of<ShapeError>([&] {
                   reshape(x, {4, 2});
                 }),
                 "reshape: [2, 3] has 6 elements and [4, 2] has 8"));
  CHECK(contains(error_of<ShapeError>([&] { reshape(x, {-1, -1}); }), "reshape: sizes [-1, -1]"));
  CHECK(contains(error_of<ShapeError>([&] { reshape(x, {-2, 3}); }), "reshape: sizes [-2, 3]"));
  CHECK(contains(error_of<ShapeError>([&] {
                   reshape(x, {4, -1});
                 }),
                 "cannot divide evenly (the other sizes come to 4)"));
  CHECK(contains(error_of<ShapeError>([&] {
                   reshape(Tensor::zeros({0}), {0, -1});
                 }),
                 "cannot divide evenly"));
  CHECK(contains(error_of<ValueError>([&] { reshape(Tensor(), {1}); }), "reshape: input is undefined"));
}

TEST_CASE("reshape shares the storage where strides allow it and copies elsewhere") {
  const Tensor x = counted({4, 6});
  CHECK(reshape(x, {2, 12}).buffer() == x.buffer());
  const Tensor left = narrow(x, 1, 0, 3);  // rows of 3 with a step of 6
  CHECK(reshape(left, {2, 2, 3}).buffer() == x.buffer());
  CHECK(reshape(left, {4, 1, 3, 1}).buffer() == x.buffer());
  const Tensor flat = reshape(left, {12});
  CHECK(flat.buffer() != x.buffer());
  CHECK(flat.to_vector<double>() == Doubles{0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20});
  const Tensor turned = reshape(transpose(x, 0, 1), {3, 8});
  CHECK(turned.to_vector<double>()[1] == 6);
  CHECK(reshape(expand(counted({1, 2}), {3, 2}), {6}).to_vector<double>() == Doubles{0, 1, 0, 1, 0, 1});
  // Axes of size 1 stand anywhere and say nothing about addresses.
  CHECK(reshape(narrow(counted({4, 1, 3, 2}), 0, 1, 2), {2, 6}).to_vector<double>()[11] == 17);
}

TEST_CASE("views of views see the right elements and pass gradients back") {
  const Tensor x = counted({4, 5, 6});
  require_grad(x);
  // x[2, 1 + i, 3] for i in 0..2
  const Tensor y = select(narrow(transpose(select(x, 0, 2), 0, 1), 1, 1, 3), 0, 3);
  CHECK(y.to_vector<double>() == Doubles{2 * 30 + 6 + 3, 2 * 30 + 12 + 3, 2 * 30 + 18 + 3});
  backward(y, Tensor::from(Doubles{1, 2, 3}, {3}));
  Doubles want(120, 0);
  want[69] = 1;
  want[75] = 2;
  want[81] = 3;
  CHECK(grad(x).to_vector<double>() == want);
}

TEST_CASE("overlapping windows add their gradients") {
  const Tensor x = counted({4});
  require_grad(x);
  const Tensor first = narrow(x, 0, 0, 3), second = narrow(x, 0, 1, 3), whole = narrow(x, 0, 0, 4);
  const Tensor ones = Tensor::full({3}, 1, Dtype::f64);
  backward({first, second, whole}, {ones, ones, Tensor::from(Doubles{10, 10, 10, 10}, {4})});
  CHECK(grad(x).to_vector<double>() == Doubles{11, 12, 12, 11});
}

TEST_CASE("the backward of a loop over time steps costs one gradient of the sequence") {
  const std::int64_t steps = 2000, width = 64;
  const Tensor x = Tensor::zeros({steps, width});
  require_grad(x);
  Tensors ys, dys;
  for (std::int64_t t = 0; t < steps; ++t) {
    ys.push_back(select(x, 0, t));
    dys.push_back(Tensor::full({width}, static_cast<double>(t)));
  }
  Allocator& memory = allocator(kCpu);
  memory.reset_peak();
  const std::int64_t before = memory.stats().live_bytes;
  backward(ys, dys);
  CHECK(memory.stats().peak_bytes - before < 2 * x.bytes());
  CHECK(grad(x).to_vector<float>()[static_cast<std::size_t>(1234 * width + 7)] == 1234);
}

TEST_CASE("parts of an axis laid end to end give the whole and its gradient") {
  const Tensor x = counted({3, 7, 2});
  require_grad(x);
  const Tensor y = concat(split(x, 1, {2, 0, 1, 4}), 1);
  CHECK(y.shape() == x.shape());
  CHECK(y.to_vector<double>() == x.to_vector<double>());
  const Tensor dy = sample_normal({3, 7, 2}, "dy");
  backward(y, dy);
  CHECK(grad(x).to_vector<double>() == dy.to_vector<double>());
}

TEST_CASE("a part of a split that nobody uses gets a gradient of zero") {
  const Tensor x = counted({2, 5});
  require_grad(x);
  const Tensors parts = split(x, -1, {2, 1, 2});
  backward(parts[1], Tensor::from(Doubles{5, 6}, {2, 1}));
  CHECK(grad(x).to_vector<double>() == Doubles{0, 0, 5, 0, 0, 0, 0, 6, 0, 0});
}

TEST_CASE("one tensor several times in a concat gets the sum of its gradients") {
  const Tensor x = counted({2});
  require_grad(x);
  backward(concat({x, x, x}, 0), counted({6}));
  CHECK(grad(x).to_vector<double>() == Doubles{0 + 2 + 4, 1 + 3 + 5});
}

TEST_CASE("chunk gives equal parts of an axis, and refuses a number that does not divide it") {
  const Tensor x = counted({2, 6});
  const std::vector<Tensor> parts = chunk(x, 3, -1);
  REQUIRE(parts.size() == 3);
  CHECK(numbers(parts[1]) == numbers(narrow(x, 1, 2, 2)));
  CHECK(parts[1].buffer().get() == x.buffer().get());
  CHECK(chunk(Tensor::zeros({2, 0}), 3, 1)[2].shape() == Shape{2, 0});
  CHECK(contains(error_of<ShapeError>([&] { chunk(x, 4, 1); }), "chunk: 4 parts of axis 1 of [2, 6]"));
  CHECK_THROWS_AS(chunk(x, 0, 1), ShapeError);
  CHECK_THROWS_AS(chunk(x, 2, 2), ShapeError);
}

TEST_CASE("split and concat refuse what does not fit") {
  const Tensor x = counted({2, 5});
  CHECK(contains(error_of<ShapeError>([&] {
                   split(x, 1, {2, 2});
                 }),
                 "split: sizes [2, 2] for axis 1 of [2, 5]"));
  CHECK(contains(error_of<ShapeError>([&] { split(x, 1, {6, -1}); }), "split: sizes [6, -1]"));
  CHECK(contains(error_of<ShapeError>([&] { split(x, 2, {5}); }), "no such axis"));
  CHECK(contains(error_of<ValueError>([&] { concat({}, 0); }), "concat: no tensors"));
  CHECK(contains(error_of<ValueError>([&] { concat({x, Tensor()}, 0); }), "concat: input is undefined"));
  CHECK(contains(error_of<ShapeError>([&] {
                   concat({x, counted({2, 4})}, 0);
                 }),
                 "concat: [2, 5] and [2, 4] along axis 0"));
  CHECK(contains(error_of<ShapeError>([&] { concat({x, counted({5})}, 0); }), "concat: [2, 5] and [5]"));
  CHECK(contains(error_of<DtypeError>([&] {
                   concat({x, Tensor::zeros({2, 5})}, 0);
                 }),
                 "concat: f64 and f32"));
}

TEST_CASE("entry -1 of an axis is its last one, and has its gradient") {
  const Tensor x = counted({2, 5});
  require_grad(x);
  CHECK(select(x, 1, -1).to_vector<double>() == select(x, 1, 4).to_vector<double>());
  backward(select(x, 1, -2), Tensor::full({2}, 1, Dtype::f64));
  CHECK(grad(x).to_vector<double>() == std::vector<double>{0, 0, 0, 1, 0, 0, 0, 0, 1, 0});
}

TEST_CASE("parts outside an axis are refused") {
  const Tensor x = counted({2, 5});
  CHECK(contains(error_of<ShapeError>([&] { narrow(x, 1, 3, 3); }),
                 "narrow: 3 entries from 3 of axis 1 of [2, 5]"));
  CHECK(contains(error_of<ShapeError>([&] { narrow(x, 1, -1, 2); }), "narrow: 2 entries from -1"));
  CHECK(contains(error_of<ShapeError>([&] { select(x, 0, 2); }), "select: entry 2 of axis 0 of [2, 5]"));
  CHECK_THROWS_AS(select(x, 0, -3), ShapeError);
  CHECK_THROWS_AS(select(x, 2, -1), ShapeError);
  CHECK_THROWS_AS(select(Tensor::zeros({}), 0, -1), ShapeError);
  CHECK(contains(error_of<ShapeError>([&] { expand(x, {2, 10}); }), "expand: [2, 5] to [2, 10]"));
  CHECK(contains(error_of<ShapeError>([&] { transpose(x, 0, 2); }), "no such axis"));
}

TEST_CASE("contiguous gives a row-major tensor itself") {
  const Tensor x = counted({3, 4});
  CHECK(contiguous(x).same(x));
  const Tensor y = contiguous(transpose(x, 0, 1));
  CHECK(y.contiguous());
  CHECK(y.buffer() != x.buffer());
}

TEST_CASE("views of untracked tensors leave no nodes") {
  const std::int64_t before = graph_stats().recorded;
  const Tensor x = counted({2, 6});
  concat(split(reshape(transpose(x, 0, 1), {3, 4}), 1, {1, 3}), 1);
  CHECK(graph_stats().recorded == before);
}

TEST_CASE("cast returns a tensor of the same dtype itself") {
  const Tensor x = counted({3});
  CHECK(cast(x, Dtype::f64).same(x));
  CHECK(contains(error_of<ValueError>([] { cast(Tensor(), Dtype::f32); }), "cast: input is undefined"));
}

TEST_CASE("the gradient of a cast comes back in the dtype of the input") {
  for (const Dtype dtype : {Dtype::f64, Dtype::bf16}) {
    const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3});
    require_grad(x);
    const Tensor y = cast(x, dtype);
    CHECK(y.dtype() == dtype);
    backward(y, raw::cast(Tensor::from(Doubles{0.5, -4, 3}, {3}), dtype));
    CHECK(grad(x).to_vector<float>() == std::vector<float>{0.5, -4, 3});
  }
}

TEST_CASE("a cast to bf16 rounds to nearest even and a cast to integers stops the gradient") {
  const Tensor x = Tensor::from(std::vector<float>{1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -2.75f}, {3});
  require_grad(x);
  const std::vector<float> rounded = raw::cast(cast(x, Dtype::bf16), Dtype::f32).to_vector<float>();
  CHECK(rounded == std::vector<float>{1.0f, 1.0f + 0x1p-6f, -2.75f});
  const Tensor whole = cast(x, Dtype::i64);
  CHECK(whole.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1, -2});
  CHECK_FALSE(requires_grad(whole));
}

TEST_CASE("flatten and squeeze and unsqueeze and permute share the storage and count negative axes") {
  const Tensor x = counted({2, 1, 3});
  CHECK(flatten(x).shape() == Shape{6});
  CHECK(flatten(Tensor::zeros({})).shape() == Shape{1});
  CHECK(squeeze(x).shape() == Shape{2, 3});
  CHECK(squeeze(x, -2).shape() == Shape{2, 3});
  CHECK(squeeze(Tensor::zeros({1, 1})).rank() == 0);
  CHECK(unsqueeze(x, -1).shape() == Shape{2, 1, 3, 1});
  CHECK(unsqueeze(Tensor::zeros({}), 0).shape() == Shape{1});
  CHECK(permute(x, {-1, 0, 1}).shape() == Shape{3, 2, 1});
  CHECK(permute(Tensor::zeros({}), {}).rank() == 0);
  for (const Tensor& view : {flatten(x), squeeze(x), unsqueeze(x, 1), permute(x, {2, 1, 0})})
    CHECK(view.buffer() == x.buffer());
}

TEST_CASE("permute puts every order of four axes where it says") {
  const Tensor x = counted({2, 3, 4, 5});
  std::vector<int> axes{0, 1, 2, 3};
  do {
    const Tensor y = permute(x, axes);
    for (int i = 0; i < 4; ++i) {
      CHECK(y.dim(i) == x.dim(axes[static_cast<std::size_t>(i)]));
      CHECK(y.strides()[i] == x.strides()[axes[static_cast<std::size_t>(i)]]);
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST_CASE("squeeze and unsqueeze and permute refuse axes that do not fit") {
  const Tensor x = counted({2, 3});
  CHECK(contains(error_of<ShapeError>([&] { squeeze(x, 1); }), "squeeze: axis 1 of [2, 3] has size 3"));
  CHECK_THROWS_AS(unsqueeze(x, 3), ShapeError);
  CHECK_THROWS_AS(unsqueeze(Tensor::zeros({1, 1, 1, 1, 1, 1}), 0), ShapeError);
  for (const std::vector<int>& axes :
       {std::vector<int>{0}, std::vector<int>{0, 0}, std::vector<int>{0, 1, 2}})
    CHECK(contains(error_of<ShapeError>([&] { permute(x, axes); }), "of [2, 3] (each axis once)"));
  CHECK_THROWS_AS(permute(x, {0, 2}), ShapeError);
}

TEST_CASE("stack puts tensors side by side along a new axis and refuses other shapes") {
  const Tensor a = counted({2}), b = a + 10.0;
  CHECK(stack({a, b}).to_vector<double>() == Doubles{0, 1, 10, 11});
  CHECK(stack({a, b}, -1).to_vector<double>() == Doubles{0, 10, 1, 11});
  CHECK(stack({Tensor::zeros({}), Tensor::full({}, 1)}).shape() == Shape{2});
  CHECK(stack({Tensor::zeros({0, 3})}, 1).shape() == Shape{0, 1, 3});
  CHECK(contains(error_of<ShapeError>([&] {
                   stack({a, counted({3})});
                 }),
                 "stack: [2] and [3] (one shape for all)"));
  CHECK(contains(error_of<ValueError>([&] { stack({}); }), "stack: no tensors"));
  CHECK_THROWS_AS(stack({a}, 2), ShapeError);
}
