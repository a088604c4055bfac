// Text made safe to show.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

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
