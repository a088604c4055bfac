// What tensor/ needs of a device other than the CPU: copies, fills and casts. A backend installs one of
// these.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual Tensor to_device(const Tensor& x, Device device) = 0;
  virtual void copy_strided(const Tensor& to, const Tensor& from) = 0;
  virtual void add_into(const Tensor& to, const Tensor& from) = 0;
  virtual void fill(const Tensor& x, double value) = 0;
  virtual void cast(const Tensor& to, const Tensor& from) = 0;
};

// errors: DeviceError when this build has no such backend.
Transfer& transfer(Device device);
void set_transfer(DeviceType type, Transfer* new_transfer);

}  // namespace eddy
