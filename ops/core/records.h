// Tables of plain structs in device memory, for kernels that read arguments from there.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Uploads `count` records; returns them as a u8 tensor [count * size of one] on the device.
// errors: OutOfMemoryError, DeviceError.
template <class Record>
Tensor upload_records(Device device, const Record* records, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const Tensor bytes = Tensor::empty({static_cast<std::int64_t>(count * sizeof(Record))}, Dtype::u8);
  if (count > 0) std::memcpy(bytes.raw_data(), records, count * sizeof(Record));
  return raw::to_device(bytes, device);
}
template <class Record>
Tensor upload_records(Device device, const std::vector<Record>& records) {
  return upload_records(device, records.data(), records.size());
}

// Returns the number of records in a tensor of upload_records.
template <class Record>
std::int64_t record_count(const Tensor& records) {
  return records.elements() / static_cast<std::int64_t>(sizeof(Record));
}

}  // namespace eddy
