// `fail<SomeError>("op: what: {} (rule)", value)` throws a typed error with a formatted text. Host code only
// (fmt). Formatting and throwing are compiled once, in format.cpp: calls stay small, and this header needs
// only fmt's core. Files that join ranges include <fmt/ranges.h> themselves.
#pragma once

#include <fmt/core.h>

#include "tensor/base/error.h"

namespace eddy {

namespace detail {
// E is one of the errors in tensor/base/error.h.
template <class E>
[[noreturn]] void throw_formatted(fmt::string_view text, fmt::format_args args);
}  // namespace detail

// Throws an E, one of the errors in tensor/base/error.h, whose text is formatted as by fmt.
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  detail::throw_formatted<E>(text, fmt::make_format_args(args...));
}

}  // namespace eddy
