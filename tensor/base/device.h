// Devices: where the bytes of a tensor are stored. Tensors of the counting device have shapes and no bytes
// (ops/cost/counting.h).
#pragma once

#include <cstdint>
#include <string>

namespace eddy {

// A kind of device, and how many kinds there are.
enum class DeviceType : std::uint8_t { cpu, cuda, counting };
inline constexpr int kDeviceTypeCount = 3;

// One device: its kind, and its number among those of the kind.
struct Device {
  // The CPU has the number 0.
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device& a, const Device& b) { return a.type == b.type && a.index == b.index; }
};

// The CPU.
inline constexpr Device kCpu{};

// "cpu", "cuda:0", "counting".
std::string to_string(const Device& device);

}  // namespace eddy
