// The arithmetic by which kernels find strided elements, on the CPU: division by multiplication, merging of
// axes, cutting into parts.
#include <doctest/doctest.h>

#include <vector>

#include "cuda/core/walk.h"
#include "tensor/random/philox.h"

using namespace eddy;
using cuda::FastDivide;
using cuda::Walk;
using cuda::WalkShape;

TEST_CASE("division by multiplication is division for every number below 2^31") {
  const RandomKey key = random_key(1, "divide", 0);
  std::vector<std::uint32_t> divisors = {1,   2,     3,     4,     5,          7,          16,
                                         641, 65535, 65536, 65537, 0x3fffffff, 0x40000000, 0x7fffffff};
  for (std::uint64_t i = 0; i < 200; ++i)
    divisors.push_back((key.word(i) >> (1 + key.word(i + 1000) % 30)) + 1);
  for (const std::uint32_t divisor : divisors) {
    const FastDivide divide = FastDivide::by(divisor);
    std::vector<std::uint32_t> numbers = {0, 1, divisor - 1, divisor, 0x7fffffff, 0x7ffffffe};
    for (std::uint32_t k = 1; k < 50; ++k) {
      const std::uint64_t multiple = std::uint64_t{divisor} * k;
      if (multiple < 0x80000000u)
        numbers.insert(numbers.end(),
                       {static_cast<std::uint32_t>(multiple - 1), static_cast<std::uint32_t>(multiple)});
    }
    const std::uint32_t last = 0x7fffffffu / divisor * divisor;
    numbers.insert(numbers.end(), {last, last - 1});
    for (std::uint64_t i = 0; i < 200; ++i) numbers.push_back(key.word(5000 + i) >> 1);
    for (const std::uint32_t n : numbers) REQUIRE(divide.quotient(n) == n / divisor);
  }
}

namespace {

struct Axis {
  std::int64_t size, a, b;
};

// The offsets of every element in row-major order, by counting.
std::vector<std::pair<std::int64_t, std::int64_t>> counted(const std::vector<Axis>& axes) {
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets = {{0, 0}};
  for (const Axis& axis : axes) {
    std::vector<std::pair<std::int64_t, std::int64_t>> deeper;
    for (const auto& [a, b] : offsets)
      for (std::int64_t i = 0; i < axis.size; ++i) deeper.emplace_back(a + i * axis.a, b + i * axis.b);
    offsets = deeper;
  }
  return offsets;
}

std::vector<std::pair<std::int64_t, std::int64_t>> walked(const std::vector<Axis>& axes, std::int64_t most,
                                                          int* parts) {
  WalkShape<2> shape;
  for (const Axis& axis : axes) shape.add_axis(axis.size, {axis.a, axis.b});
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
  *parts = 0;
  shape.for_parts(
      [&](const Walk<2>& walk, const std::int64_t* starts) {
        ++*parts;
        CHECK(std::int64_t{walk.elements} <= most);
        for (std::uint32_t i = 0; i < walk.elements; ++i) {
          std::int64_t at[2] = {starts[0], starts[1]};
          walk.add_offsets(i, at);
          offsets.emplace_back(at[0], at[1]);
        }
      },
      most);
  return offsets;
}

}  // namespace

TEST_CASE("a walk visits the elements of two strided tensors in row-major order whole or in parts") {
  const std::vector<std::vector<Axis>> shapes = {
      {},
      {{1, 5, 7}},
      {{13, 1, 1}},
      {{13, 3, 0}},
      {{4, 6, 1}, {6, 1, 4}},
      {{4, 6, 6}, {6, 1, 1}},
      {{2, 12, 0}, {1, 99, 99}, {3, 4, 1}, {4, 1, 3}},
      {{2, 240, 1}, {3, 80, 2}, {2, 40, 6}, {2, 20, 12}, {4, 5, 24}, {5, 1, 96}},
      {{0, 3, 3}, {3, 1, 1}}};
  for (const std::vector<Axis>& axes : shapes)
    for (const std::int64_t most : {1, 2, 3, 5, 7, 24, 1 << 30}) {
      int parts = 0;
      const auto got = walked(axes, most, &parts), want = counted(axes);
      CHECK(got == want);
      if (most == 1 << 30) CHECK(parts == (want.empty() ? 0 : 1));
    }
}

TEST_CASE("axes that all operands cross in one progression are merged") {
  WalkShape<2> shape;
  shape.add_axis(4, {6, 12});
  shape.add_axis(1, {99, 98});
  shape.add_axis(3, {2, 4});
  shape.add_axis(2, {1, 0});
  CHECK(shape.rank == 2);
  CHECK(shape.sizes[0] == 12);
  CHECK(shape.strides[1][0] == 4);
  CHECK(shape.elements() == 24);
}

TEST_CASE("tensors are flat together if element i of each lies at i") {
  const auto flat = [](const std::vector<Axis>& axes) {
    WalkShape<2> shape;
    for (const Axis& axis : axes) shape.add_axis(axis.size, {axis.a, axis.b});
    return shape.is_flat();
  };
  CHECK(flat({}));
  CHECK(flat({{1, 5, 7}}));
  CHECK(flat({{4, 6, 6}, {1, 99, 98}, {6, 1, 1}}));
  CHECK(flat({{0, 1, 1}}));
  CHECK(!flat({{4, 6, 7}, {6, 1, 1}}));
  CHECK(!flat({{6, 1, 0}}));
  CHECK(!flat({{6, 2, 2}}));
}
