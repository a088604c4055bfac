// What tensor/ needs of a device other than the CPU: copies, fills and casts. A backend installs one of
// these.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace eddy {

class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual Tensor to_device(const Tensor& x, Device device) = 0;
  virtual void copy_strided(const Tensor& to, const Tensor& from) = 0;
  // The same for pairs of one dtype, none of them empty.
  virtual void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) = 0;
  virtual void add_into(const Tensor& to, const Tensor& from) = 0;
  virtual void add(const Tensor& to, const Tensor& a, const Tensor& b) = 0;
  virtual void fill(const Tensor& x, double value) = 0;
  virtual void cast(const Tensor& to, const Tensor& from) = 0;
};

// errors: DeviceError when this build has no such backend.
Transfer& transfer(Device device);
void set_transfer(DeviceType type, Transfer* new_transfer);

namespace raw {

// copy_into for each pair, all of one dtype; on a GPU one launch does several.
// errors: as copy_into.
void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from);
// The tensors one behind the other along an axis, in a new one. They agree in dtype, device and all other
// sizes, which is not checked; there is at least one.
Tensor concat(const std::vector<Tensor>& tensors, int axis);
// a + b as a new row-major tensor, for floating types and any strides.
// errors: ShapeError unless shapes and dtypes are equal; DtypeError.
Tensor add(const Tensor& a, const Tensor& b);

}  // namespace raw

}  // namespace eddy
