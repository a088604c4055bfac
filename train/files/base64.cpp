// Three bytes become four digits of six bits.
#include "train/files/base64.h"

#include <cstddef>
#include <cstdint>

namespace eddy::training {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i)
      three = (three << 8) | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? kDigits[(three >> (18 - 6 * i)) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const bool padded = last && i >= 4 - padding;
      const int digit = padded ? 0 : digit_of(text[at + i]);
      if (digit < 0) return std::nullopt;
      three = (three << 6) | static_cast<std::uint32_t>(digit);
    }
    const std::size_t count = last ? 3 - padding : 3;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto byte = static_cast<unsigned char>((three >> (16 - 8 * i)) & 255);
      if (i < count)
        bytes += static_cast<char>(byte);
      else if (byte != 0)
        return std::nullopt;  // the bits after the last byte must be 0
    }
  }
  return bytes;
}

}  // namespace eddy::training
