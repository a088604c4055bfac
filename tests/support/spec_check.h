// What tests use to compare what ops give.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "ops/core/op_check.h"

namespace eddy::spec_check {

// Fails with the text of a difference; "" is none.
inline void expect_none(const std::string& difference) {
  CHECK_MESSAGE(difference.empty(), difference);
}

// Leaves freed blocks of all small size classes filled with one byte, so that the next allocations find it:
// 0xff makes NaN of every floating type.
inline void poison(unsigned char byte, const Tensors& inputs) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 64; bytes <= 512; bytes += 64) sizes.push_back(bytes);
  for (std::int64_t base = 512; base <= 8192; base *= 2)
    for (std::int64_t eighth = 1; eighth <= 8; ++eighth) sizes.push_back(base + base * eighth / 8);
  for (const Tensor& x : inputs)
    if (x.defined() && x.bytes() > 8192) sizes.push_back(x.bytes());
  Tensors blocks;
  for (const std::int64_t bytes : sizes)
    for (int copy = 0; copy < 6; ++copy) {
      blocks.push_back(Tensor::empty({bytes}, Dtype::u8));
      std::memset(blocks.back().raw_data(), byte, static_cast<std::size_t>(bytes));
    }
}

}  // namespace eddy::spec_check
