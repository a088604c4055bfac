// Numbers from text, the same in every language of the user's.
#pragma once

#include <charconv>
#include <concepts>

namespace eddy {

// std::from_chars for floating-point numbers, which the C++ library of macOS does not have.
std::from_chars_result number_from(const char* first, const char* last, double& value);

// std::from_chars.
template <std::integral Integer>
std::from_chars_result number_from(const char* first, const char* last, Integer& value) {
  return std::from_chars(first, last, value);
}

namespace detail {

// The same by the C library, for C++ libraries that lack it.
std::from_chars_result number_by_strtod(const char* first, const char* last, double& value);

}  // namespace detail

}  // namespace eddy
