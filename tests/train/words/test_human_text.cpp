// Text made safe to show.
#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "train/words/human_text.h"

using namespace eddy;
using namespace eddy::training;

TEST_CASE("printable: line ends of every kind are newlines and control characters are replaced") {
  CHECK(printable("a\nb\tc") == "a\nb\tc");
  CHECK(printable("a\r\nb") == "a\nb");
  CHECK(printable("a\rb\r") == "a\nb\n");
  CHECK(printable("a\r\r\nb") == "a\n\nb");
  CHECK(printable("\x1b[2J") == "\xef\xbf\xbd[2J");
  CHECK(printable("\xc2\x9b"
                  "2J") ==
        "\xef\xbf\xbd"
        "2J");  // the C1 control
  CHECK(printable("\xff") == "\xef\xbf\xbd");
}

TEST_CASE("plural: one alone has no s, and none has one") {
  CHECK(plural(1, "run") == "run");
  CHECK(plural(0, "run") == "runs");
  CHECK(plural(2, "run") == "runs");
  CHECK(plural(0.5, "minute") == "minutes");
  CHECK(plural(2, "story", "stories") == "stories");
  CHECK(decimal_bytes(1) == "1 byte");
}

TEST_CASE("a printable buffer hands on safe pieces") {
  std::ostringstream shown;
  PrintableBuffer safe(shown);
  std::ostream stream(&safe);
  stream << "data: "
         << "x\x1b[2J.txt"
         << ", " << 5 << '\x1b' << " bytes" << std::flush;
  CHECK(shown.str() == "data: x\xef\xbf\xbd[2J.txt, 5\xef\xbf\xbd bytes");
  CHECK(stream.good());
}

TEST_CASE("a count is read with its unit, and exactly or not at all") {
  for (const auto& [text, value] : {std::pair{"0", std::int64_t{0}},
                                    {"250", 250},
                                    {"10k", 10'000},
                                    {"2M", 2'000'000},
                                    {"1.50m", 1'500'000},
                                    {"7b", 7'000'000'000},
                                    {"0.001G", 1'000'000},
                                    {"-3k", -3000}}) {
    CAPTURE(text);
    REQUIRE(count_from(text));
    CHECK(*count_from(text) == value);
  }
  for (const char* text : {"", "k", "-k", ".5k", "1.k", "1.2345k", "1.5", "1e3", "10 k", "10kk", "2mb", "1-k",
                           "1.-5k", "99999999999999999999", "9999999999b"}) {
    CAPTURE(text);
    CHECK_FALSE(count_from(text));
  }
}
