// GGUF files, version 3, as llama.cpp reads them: numbers, texts and lists by key, then tensors by name.
//
//   "GGUF"  u32 version  u64 tensors  u64 values
//   each value:   text key, u32 type, the value; a text is u64 bytes and the bytes, a list is u32 type, u64 count
//   each tensor:  text name, u32 axes, u64 sizes, u32 type, u64 offset    sizes of the innermost axis first
//   the data of all tensors, each from a multiple of the alignment (32, or general.alignment)
//
// Source: the format's description, docs/gguf.md of https://github.com/ggml-org/ggml.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace eddy::app {

using GgufValue = std::variant<bool, std::uint32_t, float, std::string, std::vector<std::string>,
                               std::vector<float>, std::vector<std::int32_t>, std::vector<std::uint8_t>>;
using GgufValues = std::map<std::string, GgufValue>;

// The value of a key, or null where there is none of this type.
template <class T>
const T* gguf_value(const GgufValues& values, const char* key) {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : std::get_if<T>(&found->second);
}

struct GgufFile {
  GgufValues values;                      // whole numbers of other widths too, where a u32 holds them
  std::map<std::string, Tensor> tensors;  // F16 as f32
};

// Writes a file, whole or not at all: values and tensors by name, tensors in f32.
// errors: IoError.
void write_gguf(const std::string& path, const GgufFile& file);

// Returns a file's tensors on the CPU and its values; values of other types are left out.
// errors: IoError; FormatError for what is no such file, is cut off or damaged, and for tensors whose numbers are
// quantised, which are named.
GgufFile read_gguf(const std::string& path);

}  // namespace eddy::app
