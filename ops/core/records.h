// Tables of plain structs in the memory of a device, for kernels that take their numbers from there.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// The bytes of `count` records, one after the other, as a u8 tensor [count * size of one] on a device.
// errors: OutOfMemoryError, DeviceError.
template <class Record>
Tensor records_on(Device device, const Record* records, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const Tensor bytes = Tensor::empty({static_cast<std::int64_t>(count * sizeof(Record))}, Dtype::u8);
  if (count > 0) std::memcpy(bytes.raw_data(), records, count * sizeof(Record));
  return raw::to_device(bytes, device);
}
template <class Record>
Tensor records_on(Device device, const std::vector<Record>& records) {
  return records_on(device, records.data(), records.size());
}

// How many records a tensor of records_on holds.
template <class Record>
std::int64_t record_count(const Tensor& records) {
  return records.elements() / static_cast<std::int64_t>(sizeof(Record));
}

}  // namespace eddy
