// Safetensors files: a little-endian u64 with the length of a JSON header, the header, then the raw
// little-endian bytes of all tensors; offsets count from the end of the header. Files may be malicious, so
// the whole header is checked before a tensor is returned.
// Source: the format's description at https://github.com/huggingface/safetensors (Format).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/dtype.h"
#include "tensor/files/input_file.h"
#include "tensor/tensor.h"

namespace eddy {

// The texts under "__metadata__", by key.
using SafetensorsMetadata = std::map<std::string, std::string>;

// One tensor of an open file.
struct SafetensorsEntry {
  std::string name;            // unique in the file
  std::string type;            // the format's name of the element type: "F32", "F16", "BOOL", ...
  std::optional<Dtype> dtype;  // Eddy's dtype of this name; nothing for F16 and other types that it lacks
  std::vector<std::int64_t> shape;  // as in the file, of any rank
  std::int64_t offset = 0;          // of its data, from the beginning of the file
  std::int64_t bytes = 0;           // of its data
};

// An open file with its header in memory. Data are read when they are asked for: a file that becomes shorter
// meanwhile is an error.
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
  const std::string& path() const { return file_.path(); }
  // The whole file, header included.
  const InputFile& file() const { return file_; }
  // Copies a tensor's data, `entry.bytes` bytes.
  // errors: IoError.
  void read(const SafetensorsEntry& entry, void* into) const { file_.read(entry.offset, into, entry.bytes); }

 private:
  explicit SafetensorsFile(InputFile file) : file_(std::move(file)) {}

  InputFile file_;
  std::vector<SafetensorsEntry> entries_;
  SafetensorsMetadata metadata_;
};

// One tensor to write: row-major elements in the machine's byte order.
struct SafetensorsItem {
  std::string name;                 // unique
  Dtype dtype = Dtype::f32;         // of the elements
  std::vector<std::int64_t> shape;  // of any rank
  const void* data = nullptr;       // as many elements as the shape has
};

// Writes a file completely or not at all. Names are sorted in the header; data are ordered by element size,
// widest first, so that each tensor is aligned. Equal input gives equal bytes.
// errors: ValueError for names that are equal, reserved or not UTF-8, for bad shapes and missing data;
// IoError when writing fails, or why_not_writable(path); what is there is then unchanged.
void write_safetensors(const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata = {});

// Whether to read the tensor of a name; an empty function reads all.
using SafetensorsNames = std::function<bool(const std::string&)>;

// Returns the wanted tensors of a file, copied to the CPU.
// dtypes: F32, F64, BF16, I32, I64 and U8 as they are; F16 becomes f32, and BOOL u8.
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
