// Safetensors files: a little-endian u64 with the length of a JSON header, the header, then the raw
// little-endian bytes of all tensors; offsets count from the end of the header. Files may be malicious, so
// the whole header is checked before a tensor is returned.
// Source: the format's description at https://github.com/huggingface/safetensors (Format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/dtype.h"
#include "tensor/tensor.h"

namespace eddy {

using SafetensorsMetadata = std::map<std::string, std::string>;

// One tensor of an open file. `data` points into the file and may be misaligned for its dtype: copy with
// memcpy.
struct SafetensorsEntry {
  std::string name;
  std::string type;            // the format's name of the element type: "F32", "F16", "BOOL", ...
  std::optional<Dtype> dtype;  // Eddy's dtype of this name; nothing for F16 and other types that it lacks
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// A file mapped into memory for reading. Entries and their data live as long as the object or a copy of it.
// The file must not be truncated meanwhile. write_safetensors replaces whole files and truncates none.
class SafetensorsFile {
 public:
  // Returns the file with its header checked. It may hold tensors of any type that the format knows.
  // errors: IoError if it cannot be read; FormatError for a malformed header or a pickle file of PyTorch.
  static SafetensorsFile open(const std::string& path);

  // All tensors, sorted by name.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // The tensor of that name, or nullptr.
  const SafetensorsEntry* find(std::string_view name) const;
  // The texts under "__metadata__".
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // The path that was opened.
  const std::string& path() const { return path_; }
  // The whole file, header included.
  std::span<const std::byte> bytes() const { return {mapping_.get(), size_}; }

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::shared_ptr<const std::byte> mapping_;
  std::size_t size_ = 0;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

// One tensor to write: row-major elements in the machine's byte order.
struct SafetensorsItem {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

// Writes a file completely or not at all. Names are sorted in the header; data are ordered by element size,
// widest first, so that each tensor is aligned. Equal input gives equal bytes.
// errors: ValueError for names that are equal, reserved or not UTF-8, for bad shapes and missing data;
// IoError when writing fails; the old file is then unchanged.
void write_safetensors(const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata = {});

// Whether to read the tensor of a name; an empty function reads all.
using SafetensorsNames = std::function<bool(const std::string&)>;

// Returns the wanted tensors of a file, copied to the CPU.
// dtypes: F32, F64, BF16, I32, I64 and U8 as they are; F16 becomes f32.
// errors: as SafetensorsFile::open; DtypeError for a wanted tensor of another type; OutOfMemoryError.
std::map<std::string, Tensor> load_safetensors(const std::string& path, const SafetensorsNames& wanted = {});

// The same for an open file.
std::map<std::string, Tensor> load_safetensors(const SafetensorsFile& file,
                                               const SafetensorsNames& wanted = {});

// Writes tensors of any strides and device to a file.
// errors: as write_safetensors; ValueError for an undefined tensor.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const SafetensorsMetadata& metadata = {});

}  // namespace eddy
