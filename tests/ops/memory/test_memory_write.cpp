// Writing into a memory: its errors, and what stays as it was.
#include <doctest/doctest.h>

#include <vector>

#include "ops/core/op_spec.h"
#include "ops/memory/memory_write.h"
#include "tensor/base/error.h"

using namespace eddy;

namespace {

MemoryEntries memory_of(const Shape& shape) {
  return {sample_normal(shape, "keys"), sample_normal(shape, "values"),
          Tensor::zeros({shape[0]}, Dtype::i64)};
}

}  // namespace

TEST_CASE("memory_write refuses shapes and dtypes that do not fit by name") {
  const MemoryEntries memory = memory_of({2, 7, 4, 5});
  const Tensor rows = sample_normal({2, 3, 4, 5}, "rows");
  const auto refused = [&](const char* text, const MemoryEntries& into, const Tensor& keys,
                           const Tensor& values, const Tensor& emptied = {}) {
    CHECK_THROWS_WITH_AS(memory_write(into, keys, values, emptied), doctest::Contains(text), Error);
  };
  refused("size >= 1", memory_of({2, 0, 4, 5}), rows, rows);
  refused("count [3]", {memory.keys, memory.values, Tensor::zeros({3}, Dtype::i64)}, rows, rows);
  refused("count is i32 (i64)", {memory.keys, memory.values, Tensor::zeros({2}, Dtype::i32)}, rows, rows);
  refused("rows of keys [2, 3, 5, 4]", memory, raw::transpose(rows, 2, 3), raw::transpose(rows, 2, 3));
  refused("both or none", memory, rows, {});
  refused("emptied is i64 (u8)", memory, rows, rows, Tensor::zeros({2}, Dtype::i64));
  refused("emptied [3] for 2 sequences", memory, rows, rows, Tensor::zeros({3}, Dtype::u8));
  refused("are i64", memory, Tensor::zeros({2, 3, 4, 5}, Dtype::i64), rows);
}

TEST_CASE("memory_write leaves the memory it is given as it is") {
  const MemoryEntries memory = memory_of({2, 7, 1, 3});
  const std::vector<double> keys = memory.keys.to_vector<double>();
  const Tensor rows = sample_normal({2, 3, 1, 3}, "rows");
  const MemoryEntries after = memory_write(memory, rows, rows, Tensor::full({2}, 1, Dtype::u8));
  CHECK(memory.keys.to_vector<double>() == keys);
  CHECK(memory.count.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
  CHECK(after.count.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 3});
  CHECK(raw::contiguous(raw::narrow(after.keys, 1, 3, 4)).to_vector<double>() == std::vector<double>(24, 0));
}

TEST_CASE("memory_write rounds rows to the memory's dtype") {
  MemoryEntries memory = memory_of({1, 4, 1, 3});
  memory.keys = raw::cast(memory.keys, Dtype::f32);
  memory.values = raw::cast(memory.values, Dtype::f32);
  const Tensor rows = raw::cast(sample_normal({1, 4, 1, 3}, "rows"), Dtype::bf16);
  const MemoryEntries after = memory_write(memory, rows, rows);
  CHECK(after.values.to_vector<float>() == raw::cast(rows, Dtype::f32).to_vector<float>());
}

TEST_CASE("memory_write stays inside the memory whatever a count says") {
  MemoryEntries memory = memory_of({1, 5, 1, 1});
  const Tensor rows = sample_normal({1, 2, 1, 1}, "rows");
  for (const std::int64_t count : std::vector<std::int64_t>{-1, -5, -7, 1 << 30}) {
    CAPTURE(count);
    memory.count = Tensor::from(std::vector<std::int64_t>{count}, {1});
    std::vector<double> want = memory.keys.to_vector<double>();
    for (std::size_t row = 0; row < 2; ++row)
      want[static_cast<std::size_t>(((count + static_cast<std::int64_t>(row)) % 5 + 5) % 5)] =
          rows.to_vector<double>()[row];
    CHECK(memory_write(memory, rows, rows).keys.to_vector<double>() == want);
  }
}
