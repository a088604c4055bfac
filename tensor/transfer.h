// What tensor/ needs from a device other than the CPU: copies, sums, fills and casts. A backend installs an
// implementation of this interface.
#pragma once

#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Copies to the host that are enqueued and waited for later. One object has one copy under way.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // Enqueues a copy of a contiguous tensor and does not wait. What is enqueued later may overwrite the tensor.
  virtual void start(const Tensor& x) = 0;
  // Waits for that copy, not for what was enqueued after it, and returns it.
  // errors: DeviceError for a kernel that failed.
  virtual Tensor wait() = 0;
};

class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual Tensor to_device(const Tensor& x, Device device) = 0;
  virtual void copy_strided(const Tensor& to, const Tensor& from) = 0;
  // copy_strided for each pair; all have one dtype and none is empty.
  virtual void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) = 0;
  virtual void add_into(const Tensor& to, const Tensor& from) = 0;
  virtual void add(const Tensor& to, const Tensor& a, const Tensor& b) = 0;
  virtual void fill(const Tensor& x, double value) = 0;
  virtual void cast(const Tensor& to, const Tensor& from) = 0;
  virtual std::unique_ptr<HostCopy> make_host_copy() = 0;
};

// Returns the transfer of a device.
// errors: DeviceError when this build has no such backend.
Transfer& transfer(Device device);
void set_transfer(DeviceType type, Transfer* new_transfer);

namespace raw {

// Calls copy_into for each pair, all of one dtype; on a GPU one launch copies several pairs.
// errors: as copy_into.
void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from);
// Returns the tensors (at least one) concatenated along an axis. They must agree in dtype, device and all
// other sizes; this is not checked.
Tensor concat(const std::vector<Tensor>& tensors, int axis);
// Returns a + b as a new row-major tensor, for floating types and any strides.
// errors: ShapeError unless shapes and dtypes are equal; DtypeError.
Tensor add(const Tensor& a, const Tensor& b);

}  // namespace raw

}  // namespace eddy
