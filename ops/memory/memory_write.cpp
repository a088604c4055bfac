// Checks of memory_write, and its CPU kernel, which moves bytes.
#include "ops/memory/memory_write.h"

#include <algorithm>
#include <cstring>

#include "ops/core/checks.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

namespace {

constexpr std::int64_t kGrainBytes = 1 << 16;  // per chunk of the parallel loop

void check_write(const MemoryEntries& memory, const Tensor& keys, const Tensor& values,
                 const Tensor& emptied) {
  const auto floating = [](const Tensor& x, const char* name) {
    checks::defined("memory_write", x, name);
    if (!is_floating(x.dtype()))
      fail<DtypeError>("memory_write: {} are {} (a floating dtype)", name, dtype_name(x.dtype()));
  };
  floating(memory.keys, "the memory's keys");
  checks::same_kind("memory_write", memory.keys, memory.values);
  checks::defined("memory_write", memory.count, "count");
  const Shape& shape = memory.keys.shape();
  if (shape.rank() != 4 || memory.values.shape() != shape || shape[1] < 1 ||
      memory.count.shape() != Shape{shape[0]})
    fail<ShapeError>(
        "memory_write: keys {}, values {}, count {} (a memory: twice [batch, size, heads, head_dim] with "
        "size >= 1, [batch])",
        to_string(shape), to_string(memory.values.shape()), to_string(memory.count.shape()));
  if (memory.count.dtype() != Dtype::i64)
    fail<DtypeError>("memory_write: count is {} (i64)", dtype_name(memory.count.dtype()));
  const auto on_its_device = [&](const Tensor& x, const char* name) {
    if (x.device() != memory.keys.device())
      fail<DeviceError>("memory_write: {} is on {} and the memory on {} (one device for all)", name,
                        to_string(x.device()), to_string(memory.keys.device()));
  };
  on_its_device(memory.count, "count");
  if (keys.defined() != values.defined())
    fail<ValueError>("memory_write: rows of keys without values, or of values without keys (both or none)");
  if (keys.defined()) {
    floating(keys, "the rows' keys");
    checks::same_kind("memory_write", keys, values);
    on_its_device(keys, "a row");
    if (keys.rank() != 4 || keys.shape() != values.shape() || keys.dim(0) != shape[0] ||
        keys.dim(2) != shape[2] || keys.dim(3) != shape[3])
      fail<ShapeError>(
          "memory_write: rows of keys {} and values {} for a memory {} ([batch, rows, heads, "
          "head_dim] each)",
          to_string(keys.shape()), to_string(values.shape()), to_string(shape));
  }
  if (emptied.defined()) {
    if (emptied.dtype() != Dtype::u8)
      fail<DtypeError>("memory_write: emptied is {} (u8)", dtype_name(emptied.dtype()));
    if (emptied.shape() != Shape{shape[0]})
      fail<ShapeError>("memory_write: emptied {} for {} sequences ([batch])", to_string(emptied.shape()),
                       shape[0]);
    on_its_device(emptied, "emptied");
  }
}

void write(const MemoryWriteArgs& a) {
  const auto bytes = a.width * static_cast<std::int64_t>(dtype_bytes(a.dtype));
  const auto size = static_cast<std::size_t>(bytes);
  const auto entry = [bytes](const void* memory, std::int64_t number) {
    return static_cast<const char*>(memory) + number * bytes;
  };
  const auto to = [bytes](void* memory, std::int64_t number) {
    return static_cast<char*>(memory) + number * bytes;
  };
  parallel_for(a.batch * a.size, 1 + kGrainBytes / (2 * bytes + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t sequence = item / a.size;
                   const bool emptied = a.emptied != nullptr && a.emptied[sequence] != 0;
                   const std::int64_t count = emptied ? 0 : a.count[sequence];
                   const std::int64_t row = memory_row_at(item % a.size, count, a.rows, a.size);
                   if (row >= 0) {
                     const std::int64_t from = sequence * a.rows + row;
                     std::memcpy(to(a.to_keys, item), entry(a.new_keys, from), size);
                     std::memcpy(to(a.to_values, item), entry(a.new_values, from), size);
                   } else if (emptied) {
                     std::memset(to(a.to_keys, item), 0, size);
                     std::memset(to(a.to_values, item), 0, size);
                   } else {
                     std::memcpy(to(a.to_keys, item), entry(a.keys, item), size);
                     std::memcpy(to(a.to_values, item), entry(a.values, item), size);
                   }
                   if (item % a.size == 0) a.to_count[sequence] = count + a.rows;
                 }
               });
}

}  // namespace

EDDY_CPU_KERNEL_OF_ALL_DTYPES(memory_write, write)

MemoryEntries memory_write(const MemoryEntries& memory, const Tensor& keys, const Tensor& values,
                           const Tensor& emptied) {
  check_write(memory, keys, values, emptied);
  const Dtype dtype = memory.keys.dtype();
  const Device device = memory.keys.device();
  const Shape& shape = memory.keys.shape();
  const MemoryEntries after{Tensor::empty(shape, dtype, device), Tensor::empty(shape, dtype, device),
                            Tensor::empty({shape[0]}, Dtype::i64, device)};
  if (shape[0] == 0) return after;
  const auto packed = [dtype](const Tensor& x) {
    return x.dtype() == dtype ? raw::contiguous(x) : raw::contiguous(raw::cast(x, dtype));
  };
  const Tensor old_keys = packed(memory.keys), old_values = packed(memory.values);
  const Tensor count = raw::contiguous(memory.count);
  const Tensor new_keys = keys.defined() ? packed(keys) : Tensor(),
               new_values = keys.defined() ? packed(values) : Tensor(), flags = contiguous_or_none(emptied);
  memory_write_slot(
      device, {dtype, shape[0], shape[1], keys.defined() ? keys.dim(1) : 0, shape[2] * shape[3],
               old_keys.raw_data(), old_values.raw_data(), count.data<std::int64_t>(), data_or_null(new_keys),
               data_or_null(new_values), emptied.defined() ? flags.data<std::uint8_t>() : nullptr,
               after.keys.raw_data(), after.values.raw_data(), after.count.mutable_data<std::int64_t>()});
  return after;
}

}  // namespace eddy
