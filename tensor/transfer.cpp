// The table of installed transfers.
#include "tensor/transfer.h"

#include <array>

#include "tensor/base/format.h"

namespace eddy {
namespace {
std::array<Transfer*, kDeviceTypeCount> transfers{};
}

Transfer& transfer(Device device) {
  Transfer* found = transfers[static_cast<std::size_t>(device.type)];
  if (found == nullptr)
    fail<DeviceError>("device: {} is not in this build (it has: cpu; configure with -DEDDY_CUDA=ON)",
                      to_string(device));
  return *found;
}

void set_transfer(DeviceType type, Transfer* new_transfer) {
  transfers[static_cast<std::size_t>(type)] = new_transfer;
}

}  // namespace eddy
