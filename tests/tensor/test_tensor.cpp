// Tensors and their views without gradients: addresses, errors, casts and the empty cases.
#include "tensor/tensor.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

std::vector<float> floats(const Tensor& x) {
  return x.to_vector<float>();
}

// A non-contiguous tensor cannot be seen as `shape`, or it can and then holds the elements in row-major
// order.
bool reshapes(const Tensor& x, const Shape& shape) {
  try {
    const Tensor y = raw::reshape(x, shape);
    CHECK(y.shape() == shape);
    CHECK(y.buffer().get() == x.buffer().get());
    CHECK(floats(y) == floats(x));
    return true;
  } catch (const ShapeError&) {
    return false;
  }
}

}  // namespace

TEST_CASE("tensor: copies of a handle see the same bytes and views share the buffer") {
  const Tensor x = counted<float>({2, 3}), same = x, view = raw::narrow(x, 1, 1, 2);
  x.mutable_data<float>()[4] = 40;
  CHECK(floats(same) == std::vector<float>{0, 1, 2, 3, 40, 5});
  CHECK(floats(view) == std::vector<float>{1, 2, 40, 5});
  CHECK(x.same(same));
  CHECK(!x.same(view));
  CHECK(!view.contiguous());
  const Tensor own = raw::copy(view);
  x.mutable_data<float>()[4] = 4;
  CHECK(own.contiguous());
  CHECK(floats(own) == std::vector<float>{1, 2, 40, 5});
  CHECK(!Tensor().defined());
}

TEST_CASE("tensor: from needs as many values as the shape has elements") {
  CHECK(contains(error_of<ShapeError>([] {
                   Tensor::from(std::vector<float>{1, 2, 3}, {2, 2});
                 }),
                 "3 values do not fill [2, 2]"));
  CHECK(Tensor::from(std::vector<std::int64_t>{}, {0, 5}).elements() == 0);
  CHECK(Tensor::from(std::vector<double>{2.5}, {}).item() == 2.5);
}

TEST_CASE("shape: too many axes and negative sizes and missing axes are errors") {
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1}), ShapeError);
  CHECK_THROWS_AS((Shape{2, -1}), ShapeError);
  const Shape shape{2, 3, 4};
  CHECK(shape.dim(-1) == 4);
  CHECK(shape.dim(0) == 2);
  CHECK_THROWS_AS(static_cast<void>(shape.dim(3)), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(shape.dim(-4)), ShapeError);
  CHECK(to_string(shape.with(1, 7)) == "[2, 7, 4]");
  CHECK(to_string(shape.without(-1)) == "[2, 3]");
  CHECK(to_string(shape.inserted(0, 9)) == "[9, 2, 3, 4]");
  CHECK(to_string(shape.inserted(3, 9)) == "[2, 3, 4, 9]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(Shape{}.elements() == 1);
  CHECK((Shape{2, 3}) != (Shape{2, 3, 1}));
}

TEST_CASE("broadcast_shape: sizes of one repeat and others must be equal") {
  CHECK(to_string(broadcast_shape("add", {2, 1, 4}, {3, 1})) == "[2, 3, 4]");
  CHECK(to_string(broadcast_shape("add", {}, {5})) == "[5]");
  CHECK(to_string(broadcast_shape("add", {0, 3}, {1, 3})) == "[0, 3]");
  const std::string text = error_of<ShapeError>([] { broadcast_shape("add", {2, 3}, {2, 4}); });
  for (const char* part : {"add", "[2, 3]", "[2, 4]"}) CHECK(contains(text, part));
}

TEST_CASE("reshape: a contiguous tensor takes every shape of as many elements") {
  const Tensor x = counted<float>({2, 6});
  for (const Shape& shape : {Shape{12}, Shape{3, 4}, Shape{2, 3, 2}, Shape{1, 12, 1}, Shape{4, 3, 1}})
    CHECK(reshapes(x, shape));
  CHECK(contains(error_of<ShapeError>([&] {
                   raw::reshape(x, {5, 2});
                 }),
                 "[2, 6] has 12 elements and [5, 2] has 10"));
  CHECK(to_string(raw::reshape(counted<float>({1}), {}).shape()) == "[]");
}

TEST_CASE("reshape: a strided tensor splits its axes and merges those that follow each other") {
  const Tensor base = counted<float>({4, 6, 5});
  const Tensor columns = raw::narrow(base, 2, 1, 3);  // strides 30, 5, 1 with sizes 4, 6, 3
  CHECK(reshapes(columns, {24, 3}));                  // the first two axes are one progression
  CHECK(reshapes(columns, {2, 2, 6, 3}));
  CHECK(reshapes(columns, {2, 12, 3}));
  CHECK(reshapes(columns, {8, 3, 3}));
  CHECK(reshapes(columns, {4, 1, 6, 3, 1}));
  CHECK(!reshapes(columns, {72}));
  CHECK(!reshapes(columns, {4, 18}));
  CHECK(!reshapes(columns, {12, 6}));

  const Tensor turned = raw::transpose(base, 0, 1);  // strides 5, 30, 1 with sizes 6, 4, 5
  CHECK(reshapes(turned, {2, 3, 4, 5}));
  CHECK(reshapes(turned, {6, 2, 2, 5}));
  CHECK(!reshapes(turned, {24, 5}));
  CHECK(!reshapes(turned, {6, 20}));

  const Tensor swapped = raw::transpose(base, 1, 2);  // strides 30, 1, 5 with sizes 4, 5, 6
  CHECK(!reshapes(swapped, {20, 6}));
  CHECK(reshapes(swapped, {4, 5, 2, 3}));

  const Tensor repeated = raw::expand(counted<float>({3, 1}), {3, 4});  // strides 1, 0
  CHECK(reshapes(repeated, {3, 2, 2}));
  CHECK(!reshapes(repeated, {12}));
}

TEST_CASE("transpose: two axes change places and back") {
  const Tensor x = counted<float>({2, 3});
  const Tensor y = raw::transpose(x, 0, -1);
  CHECK(to_string(y.shape()) == "[3, 2]");
  CHECK(floats(y) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(!y.contiguous());
  CHECK(floats(raw::transpose(y, 0, 1)) == floats(x));
  CHECK(raw::transpose(x, 1, 1).contiguous());
  CHECK_THROWS_AS(raw::transpose(x, 0, 2), ShapeError);
  CHECK_THROWS_AS(raw::transpose(x, -3, 0), ShapeError);
}

TEST_CASE("narrow: a part of an axis and nothing outside it") {
  const Tensor x = counted<float>({3, 4});
  CHECK(floats(raw::narrow(x, 0, 1, 2)) == std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(floats(raw::narrow(x, -1, 3, 1)) == std::vector<float>{3, 7, 11});
  CHECK(raw::narrow(x, 0, 3, 0).elements() == 0);
  for (const auto& [start, length] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 2}, {0, 4}, {3, 1}, {4, 0}, {1, -1}, {1, std::numeric_limits<std::int64_t>::max()}}) {
    CAPTURE(start);
    CAPTURE(length);
    CHECK(contains(error_of<ShapeError>([&] { raw::narrow(x, 0, start, length); }), "[3, 4]"));
  }
  CHECK_THROWS_AS(raw::narrow(x, 2, 0, 1), ShapeError);
}

TEST_CASE("select: one entry of an axis and the axis goes") {
  const Tensor x = counted<float>({2, 3, 2});
  const Tensor y = raw::select(x, 1, 2);
  CHECK(to_string(y.shape()) == "[2, 2]");
  CHECK(floats(y) == std::vector<float>{4, 5, 10, 11});
  CHECK(raw::select(counted<float>({3}), 0, 1).item() == 1);
  CHECK_THROWS_AS(raw::select(x, 1, 3), ShapeError);
  CHECK_THROWS_AS(raw::select(x, 1, -1), ShapeError);
  CHECK_THROWS_AS(raw::select(x, 3, 0), ShapeError);
  CHECK_THROWS_AS(raw::select(Tensor::zeros({0, 2}), 0, 0), ShapeError);
}

TEST_CASE("expand: only sizes of one repeat") {
  const Tensor x = counted<float>({2, 1});
  CHECK(floats(raw::expand(x, {2, 3})) == std::vector<float>{0, 0, 0, 1, 1, 1});
  CHECK(floats(raw::expand(x, {2, 2, 1})) == std::vector<float>{0, 1, 0, 1});
  CHECK(raw::expand(x, {2, 0}).elements() == 0);
  for (const Shape& shape : {Shape{3, 1}, Shape{1}, Shape{2}}) {
    CAPTURE(to_string(shape));
    CHECK_THROWS_AS(raw::expand(x, shape), ShapeError);
  }
}

TEST_CASE("tensor: reading with another type is an error") {
  const Tensor x = counted<float>({2});
  CHECK(contains(error_of<DtypeError>([&] { x.data<double>(); }), "holds f32 and is read as f64"));
  CHECK_THROWS_AS(x.data<std::int32_t>(), DtypeError);
  CHECK_THROWS_AS(x.to_vector<double>(), DtypeError);
}

TEST_CASE("tensor: an undefined one throws, whatever is asked") {
  const Tensor x;
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(x.rank()); }), "undefined"));
  CHECK_THROWS_AS(static_cast<void>(x.shape()), ValueError);
  CHECK_THROWS_AS(static_cast<void>(x.dtype()), ValueError);
  CHECK_THROWS_AS(static_cast<void>(x.device()), ValueError);
  CHECK_THROWS_AS(static_cast<void>(x.elements()), ValueError);
  CHECK_THROWS_AS(static_cast<void>(x.contiguous()), ValueError);
  CHECK_THROWS_AS(x.data<float>(), ValueError);
  CHECK_THROWS_AS(x.mutable_data<float>(), ValueError);
  CHECK_THROWS_AS(x.raw_data(), ValueError);
  CHECK_THROWS_AS(x.to_vector<float>(), ValueError);
}

TEST_CASE("shape: an axis that does not exist throws") {
  const Shape shape{2, 3};
  CHECK(contains(error_of<ShapeError>([&] { static_cast<void>(shape[5]); }),
                 "no such axis: 5 of [2, 3] (2 axes)"));
  CHECK_THROWS_AS(static_cast<void>(shape[-1]), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(Shape{}[0]), ShapeError);
  CHECK(shape.dim(-1) == 3);
}

TEST_CASE("item: one element of any type and no more than one") {
  CHECK(Tensor::full({1, 1}, 2.5, Dtype::bf16).item() == 2.5);
  CHECK(Tensor::full({}, 7, Dtype::u8).item() == 7);
  const std::int64_t large = (std::int64_t{1} << 62) + 1;  // not an f64
  CHECK(Tensor::from(std::vector<std::int64_t>{large}, {1}).item_int() == large);
  CHECK(contains(error_of<ShapeError>([] { counted<float>({2}).item(); }), "2 elements"));
  CHECK_THROWS_AS(counted<float>({0}).item(), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(counted<float>({2}).item_int()), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(Tensor().item()), ValueError);
}

TEST_CASE("cast: bf16 is the nearest upper half and a tie goes to the even one") {
  const auto rounded = [](std::uint32_t wide) {
    const Tensor x = Tensor::from(std::vector<float>{std::bit_cast<float>(wide)}, {1});
    return static_cast<std::uint32_t>(raw::cast(x, Dtype::bf16).to_vector<bf16>()[0].bits);
  };
  CHECK(rounded(0x3f800000u) == 0x3f80u);
  CHECK(rounded(0x3f807fffu) == 0x3f80u);  // below the tie
  CHECK(rounded(0x3f808000u) == 0x3f80u);  // a tie: 0x3f80 is even
  CHECK(rounded(0x3f808001u) == 0x3f81u);  // above it
  CHECK(rounded(0x3f818000u) == 0x3f82u);  // a tie: 0x3f81 is odd
  CHECK(rounded(0xbf818000u) == 0xbf82u);
  CHECK(rounded(0x3fffffffu) == 0x4000u);  // into the next power of two
  CHECK(rounded(0x7f7fffffu) == 0x7f80u);  // the largest f32 rounds to infinity
  CHECK(rounded(0x7f800000u) == 0x7f80u);
  CHECK(rounded(0xff800000u) == 0xff80u);
  CHECK(rounded(0x80000000u) == 0x8000u);
  CHECK(rounded(0x00000001u) == 0x0000u);
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7fff8000u}) {
    CAPTURE(nan);
    const std::uint32_t half = rounded(nan);
    CHECK((half & 0x7f80u) == 0x7f80u);
    CHECK((half & 0x7fu) != 0);
  }
}

TEST_CASE("cast: bf16 agrees with the distance to its neighbours for many numbers") {
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::uint32_t wide = 0x30000000u + i * 0x0000fb1du;
    const float x = std::bit_cast<float>(wide);
    const float below = std::bit_cast<float>(wide & 0xffff0000u),
                above = std::bit_cast<float>((wide & 0xffff0000u) + 0x10000u);
    const float got = static_cast<float>(bf16(x));
    CHECK((got == below || got == above));
    CHECK(std::abs(got - x) <= std::min(x - below, above - x));
  }
}

TEST_CASE("cast: every type of value goes to every other and strided tensors too") {
  const std::vector<double> values{0, 1, 2, 3, 100, 7};
  for (int from = 0; from < kDtypeCount; ++from)
    for (int to = 0; to < kDtypeCount; ++to) {
      CAPTURE(dtype_name(static_cast<Dtype>(from)));
      CAPTURE(dtype_name(static_cast<Dtype>(to)));
      const Tensor x = raw::cast(Tensor::from(values, {2, 3}), static_cast<Dtype>(from));
      const Tensor y = raw::cast(raw::transpose(x, 0, 1), static_cast<Dtype>(to));
      CHECK(y.dtype() == static_cast<Dtype>(to));
      CHECK(y.contiguous());
      CHECK(raw::cast(y, Dtype::f64).to_vector<double>() == std::vector<double>{0, 3, 1, 100, 2, 7});
    }
}

TEST_CASE("cast: the same type gives a copy") {
  const Tensor x = counted<float>({3}), y = raw::cast(x, Dtype::f32);
  x.mutable_data<float>()[0] = 9;
  CHECK(floats(y) == std::vector<float>{0, 1, 2});
}

TEST_CASE("fill and copy_into and add_into: strided tensors and their errors") {
  const Tensor x = Tensor::zeros({3, 4});
  raw::fill(raw::narrow(x, 1, 1, 2), 2);
  CHECK(floats(x) == std::vector<float>{0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0});
  raw::fill(raw::narrow(x, 1, 2, 1), 0);
  CHECK(floats(x) == std::vector<float>{0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0});
  raw::copy_into(raw::select(x, 1, 3), counted<float>({3}));
  raw::add_into(raw::transpose(raw::narrow(x, 1, 0, 2), 0, 1), counted<float>({2, 3}));
  CHECK(floats(x) == std::vector<float>{0, 5, 0, 0, 1, 6, 0, 1, 2, 7, 0, 2});
  CHECK_THROWS_AS(raw::copy_into(x, counted<float>({4, 3})), ShapeError);
  CHECK_THROWS_AS(raw::copy_into(x, Tensor::zeros({3, 4}, Dtype::f64)), ShapeError);
  CHECK_THROWS_AS(raw::add_into(x, counted<float>({3})), ShapeError);
  CHECK_THROWS_AS(raw::add_into(Tensor::zeros({2}, Dtype::i64), Tensor::zeros({2}, Dtype::i64)), DtypeError);
  CHECK(std::isinf(Tensor::full({1}, std::numeric_limits<double>::infinity()).item()));
}

TEST_CASE("tensor: empty tensors can be made and seen and copied and cast") {
  const Tensor x = Tensor::zeros({3, 0, 2});
  CHECK(x.elements() == 0);
  CHECK(x.bytes() == 0);
  CHECK(x.contiguous());
  CHECK(floats(x).empty());
  CHECK(to_string(raw::reshape(x, {0, 7}).shape()) == "[0, 7]");
  CHECK(to_string(raw::transpose(x, 0, 2).shape()) == "[2, 0, 3]");
  CHECK(to_string(raw::select(x, 0, 2).shape()) == "[0, 2]");
  CHECK(to_string(raw::expand(Tensor::zeros({1, 0}), {4, 0}).shape()) == "[4, 0]");
  CHECK(raw::copy(x).elements() == 0);
  CHECK(raw::cast(x, Dtype::bf16).dtype() == Dtype::bf16);
  CHECK_NOTHROW(raw::fill(x, 1));
  CHECK_NOTHROW(raw::copy_into(x, raw::copy(x)));
  CHECK_NOTHROW(raw::add_into(x, raw::copy(x)));
  CHECK_THROWS_AS(raw::reshape(x, {1}), ShapeError);
}

TEST_CASE("tensor: exclusive tells whether anyone else can see the bytes") {
  const Tensor x = counted<float>({2, 2});
  CHECK(x.exclusive());
  {
    const Tensor handle = x;
    CHECK(!x.exclusive());
  }
  {
    const Tensor view = raw::select(x, 0, 0);
    CHECK(!x.exclusive());
    CHECK(!view.exclusive());
  }
  CHECK(x.exclusive());
}

TEST_CASE("buffer: what is derived from its bytes is current until they are written") {
  const Tensor x = Tensor::zeros({3});
  Buffer& buffer = *x.buffer();
  CHECK(buffer.derived() == nullptr);
  x.mutable_data<float>()[0] = 1;
  const Tensor other = Tensor::zeros({2});
  buffer.set_derived(other.buffer());
  CHECK(buffer.derived() == other.buffer());
  CHECK(raw::narrow(x, 0, 1, 2).buffer()->derived_is_current());
  x.mutable_data<float>()[1] = 2;
  CHECK_FALSE(buffer.derived_is_current());
  CHECK(buffer.derived() == other.buffer());
  buffer.mark_derived_current();
  CHECK(buffer.derived_is_current());
  buffer.bump_version("a test");
  CHECK_FALSE(buffer.derived_is_current());
}

TEST_CASE("tensor: a device this build does not have is an error") {
  const Device cuda{DeviceType::cuda, 0};
  CHECK_THROWS_AS(Tensor::zeros({2}, Dtype::f32, cuda), DeviceError);
  CHECK_THROWS_AS(raw::to_device(counted<float>({2}), cuda), DeviceError);
  CHECK(raw::to_device(counted<float>({2}), kCpu).elements() == 2);
}
