// Text of tensors: format every shown number, then pad them to one width.
#include "tensor/print.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr std::int64_t kWhole = 1000;  // elements up to which all are shown
constexpr std::int64_t kEdge = 3;      // entries shown at each end of a long axis

class Printer {
 public:
  // `x` is a row-major f64 tensor on the CPU; `integers` says whether its numbers are whole.
  Printer(const Tensor& x, bool integers)
      : shape_(x.shape()), values_(x.data<double>()), shortened_(x.elements() > kWhole), integers_(integers) {
    visit(0, 0, [this](double value) {
      const double size = std::abs(value);
      if (std::isfinite(value) && size != 0) scientific_ |= !integers_ && (size >= 1e6 || size < 1e-4);
    });
    visit(0, 0, [this](double value) { width_ = std::max(width_, number(value).size()); });
  }

  std::string text() { return axis_text(0, 0); }

 private:
  std::string number(double value) const {
    if (integers_ || !std::isfinite(value)) return fmt::format("{:.0f}", value);
    if (scientific_) return fmt::format("{:.4e}", value);
    std::string digits = fmt::format("{:.4f}", value);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits == "-0" ? "0" : digits;
  }

  bool hides(int axis) const { return shortened_ && shape_[axis] > 2 * kEdge; }
  // The entry that is shown after entry i.
  std::int64_t next(int axis, std::int64_t i) const {
    return hides(axis) && i == kEdge - 1 ? shape_[axis] - kEdge : i + 1;
  }

  template <class Body>
  void visit(int axis, std::int64_t at, Body&& body) const {
    if (axis == shape_.rank()) return body(values_[at]);
    for (std::int64_t i = 0; i < shape_[axis]; i = next(axis, i))
      visit(axis + 1, at * shape_[axis] + i, body);
  }

  std::string axis_text(int axis, std::int64_t at) const {
    if (axis == shape_.rank()) return fmt::format("{:>{}}", number(values_[at]), axis == 0 ? 0 : width_);
    const int inner = shape_.rank() - axis - 1;
    const std::string border = inner == 0 ? ", "
                                          : "," + std::string(static_cast<std::size_t>(inner), '\n') +
                                                std::string(static_cast<std::size_t>(axis) + 1, ' ');
    std::string text = "[";
    for (std::int64_t i = 0; i < shape_[axis]; i = next(axis, i)) {
      if (i > 0) text += border;
      if (hides(axis) && i == shape_[axis] - kEdge) text += "..." + border;
      text += axis_text(axis + 1, at * shape_[axis] + i);
    }
    return text + "]";
  }

  const Shape shape_;
  const double* const values_;
  const bool shortened_, integers_;
  bool scientific_ = false;
  std::size_t width_ = 0;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  const bool integers = !is_floating(x.dtype());
  const Tensor host = raw::contiguous(raw::cast(raw::to_device(x, kCpu), Dtype::f64));
  return fmt::format("{}  {} {} {}", Printer(host, integers).text(), dtype_name(x.dtype()),
                     to_string(x.shape()), to_string(x.device()));
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  return out << to_string(x);
}
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << to_string(shape);
}
std::ostream& operator<<(std::ostream& out, Dtype dtype) {
  return out << dtype_name(dtype);
}
std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << to_string(device);
}

}  // namespace eddy
