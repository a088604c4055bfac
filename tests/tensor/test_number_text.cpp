// Numbers from text by the C++ library, and by the C library where that has none.
#include "tensor/base/number_text.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <system_error>

using namespace eddy;

TEST_CASE("numbers from text are the same by both libraries") {
  for (const std::string text : {"0",
                                 "1",
                                 "-2.5",
                                 "1e3",
                                 "1e",
                                 "1e+",
                                 ".5",
                                 "5.",
                                 "-.5e-3",
                                 "0.1",
                                 "3.0000000000000004",
                                 "1e400",
                                 "-1e400",
                                 "1e-400",
                                 "4.9e-324",
                                 "inf",
                                 "-inf",
                                 "nan",
                                 "1,5",
                                 "",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "0x10",
                                 "-0x",
                                 "abc",
                                 "-",
                                 "1.2.3",
                                 "123456789012345678901234567890"}) {
    CAPTURE(text);
    const char* const first = text.data();
    const char* const last = first + text.size();
    double one = 7, other = 7;
    const std::from_chars_result by_cpp = std::from_chars(first, last, one),
                                 by_c = detail::number_by_strtod(first, last, other);
    CHECK(by_cpp.ec == by_c.ec);
    CHECK(by_cpp.ptr == by_c.ptr);
    CHECK((one == other || (one != one && other != other)));
    double both = 7;
    CHECK(number_from(first, last, both).ec == by_cpp.ec);
  }
}

TEST_CASE("numbers from text end where the text ends and not where its memory does") {
  const std::string text = "12.5";
  double real = 0;
  CHECK(detail::number_by_strtod(text.data(), text.data() + 2, real).ptr == text.data() + 2);
  CHECK(real == 12);
  std::int64_t whole = 0;
  CHECK(number_from(text.data(), text.data() + 1, whole).ec == std::errc());
  CHECK(whole == 1);
}
