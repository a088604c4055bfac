// Raw bytes of safetensors files, put together without the library's own writer, for tests of the reader.
#pragma once

#include <cstdint>
#include <string>

namespace eddy::test {

// A header of this length, whatever follows it, before `rest`.
inline std::string safetensors_with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return bytes + rest;
}

// A file from its header and its data.
inline std::string safetensors_bytes_of(const std::string& header, const std::string& data = "") {
  return safetensors_with_length(header.size(), header + data);
}

}  // namespace eddy::test
