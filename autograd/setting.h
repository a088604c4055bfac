// The base of classes that switch something on while they are alive.
#pragma once

#include <utility>

namespace eddy::detail {

// Gives a variable another value, and back the old one when it is destroyed.
template <class T>
class Setting {
 public:
  Setting(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Setting() { variable_ = before_; }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  T& variable_;
  const T before_;
};

}  // namespace eddy::detail
