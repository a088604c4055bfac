// `fail<SomeError>("op: what: {} (rule)", value)`: throw a typed error with a formatted text. Host code only
// (fmt).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "tensor/error.h"

namespace eddy {

template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace eddy
