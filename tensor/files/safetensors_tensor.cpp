// Safetensors files as maps of tensors.
#include <algorithm>

#include "tensor/base/format.h"
#include "tensor/files/half.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors.h"

namespace eddy {
namespace {

Tensor load_entry(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const bool half = entry.type == "F16";
  if (!entry.dtype && !half)
    fail<DtypeError>(
        "safetensors: {}: tensor {}: dtype {} is not supported (F32, F64, BF16, F16, I32, I64, U8 are; read "
        "the tensors that you need by name, or leave this one out of the file)",
        file.path(), quote_text(entry.name), entry.type);
  Tensor tensor = Tensor::empty(Shape(entry.shape), half ? Dtype::f32 : *entry.dtype);
  if (half) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(tensor.elements()));
    file.read(entry, bits.data());
    std::transform(bits.begin(), bits.end(), tensor.mutable_data<float>(), from_half);
  } else if (entry.bytes > 0)
    file.read(entry, tensor.raw_data());
  return tensor;
}

}  // namespace

std::map<std::string, Tensor> load_safetensors(const std::string& path, const SafetensorsNames& wanted) {
  return load_safetensors(SafetensorsFile::open(path), wanted);
}

std::map<std::string, Tensor> load_safetensors(const SafetensorsFile& file, const SafetensorsNames& wanted) {
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : file.entries())
    if (!wanted || wanted(entry.name)) tensors.emplace(entry.name, load_entry(file, entry));
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
