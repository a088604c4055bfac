// Safetensors files as maps of tensors.
#include <cstring>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors.h"

namespace eddy {

std::map<std::string, Tensor> load_safetensors(const std::string& path) {
  return load_safetensors(SafetensorsFile::open(path));
}

std::map<std::string, Tensor> load_safetensors(const SafetensorsFile& file) {
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    Tensor tensor = Tensor::empty(Shape(entry.shape), entry.dtype);
    if (entry.bytes > 0) std::memcpy(tensor.raw_data(), entry.data, static_cast<std::size_t>(entry.bytes));
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const SafetensorsMetadata& metadata) {
  std::vector<Tensor> rows;  // keeps copies alive until the file is written
  std::vector<SafetensorsItem> items;
  rows.reserve(tensors.size());
  items.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) fail<ValueError>("save_safetensors: tensor {} is undefined", quote_text(name));
    const Tensor local = tensor.device() == kCpu ? tensor : raw::to_device(tensor, kCpu);
    rows.push_back(raw::contiguous(local));
    const void* data = rows.back().elements() == 0 ? nullptr : rows.back().raw_data();
    items.push_back({name, tensor.dtype(), tensor.shape().to_vector(), data});
  }
  write_safetensors(path, items, metadata);
}

}  // namespace eddy
