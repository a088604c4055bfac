// Tensors as text, in the manner of NumPy.
#pragma once

#include <iosfwd>
#include <string>

#include "tensor/tensor.h"

namespace eddy {

// Returns the elements in nested brackets, then shape, dtype and device:
//
//   [[1.5,   2,   3],
//    [  4,   5,   6]]  f32 [2, 3] cpu
//
// Numbers have at most four digits behind the point, or an exponent where a tensor holds very large or small
// ones. Of an axis with more than six entries, a tensor of more than 1,000 elements shows the first and last
// three. "undefined" for an undefined tensor.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, Dtype dtype);
std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace eddy
