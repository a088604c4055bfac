// A library that has all of std::from_chars says so by a macro.
#include "tensor/base/number_text.h"

#include <locale.h>
#include <stdlib.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <string>
#include <system_error>

namespace eddy {

std::from_chars_result detail::number_by_strtod(const char* first, const char* last, double& value) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  // What only strtod takes: blanks, a plus sign, and hexadecimal digits, of which a zero is left.
  if (first == last || *first == '+' || std::isspace(static_cast<unsigned char>(*first)) != 0)
    return {first, std::errc::invalid_argument};
  const std::string text(first,
                         std::find_if(first, last, [](char c) { return c == 'x' || c == 'X' || c == '\0'; }));
  char* end = nullptr;
  errno = 0;
  const double read = strtod_l(text.c_str(), &end, c_locale);
  if (end == text.c_str()) return {first, std::errc::invalid_argument};
  const char* const stop = first + (end - text.c_str());
  if (errno == ERANGE && (read == 0 || std::isinf(read))) return {stop, std::errc::result_out_of_range};
  value = read;
  return {stop, std::errc()};
}

std::from_chars_result number_from(const char* first, const char* last, double& value) {
#if defined(__cpp_lib_to_chars)
  return std::from_chars(first, last, value);
#else
  return detail::number_by_strtod(first, last, value);
#endif
}

}  // namespace eddy
