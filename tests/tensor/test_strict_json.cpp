// JSON of files that may be damaged: what the parser underneath lets pass is an error that names the file.
#include <doctest/doctest.h>

#include <string>

#include "tensor/base/error.h"
#include "tensor/files/strict_json.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("strict json: a good text gives its value") {
  CHECK(json_of_text(" {\"a\": [1, 2.5, null]} ", "f.json").dump() == R"({"a":[1,2.5,null]})");
}

TEST_CASE("strict json: a problem names the file and the place") {
  const auto refusal = [](const std::string& text) {
    return error_of<FormatError>([&] { static_cast<void>(json_of_text(text, "f.json")); });
  };
  CHECK(contains(refusal("{\"a\": }"), "f.json is not JSON: "));
  CHECK(contains(refusal("{\"a\": }"), "(at byte 7)"));
  CHECK(contains(refusal("{} x"), "f.json is not JSON: "));
  CHECK(contains(refusal(std::string("{}\0", 3)), "NUL byte"));
  CHECK(contains(refusal("{\"a\":1,\"a\":2}"), "duplicate key \"a\""));
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 200'000; ++i) deep += open;
    CHECK(contains(refusal(deep), "nested deeper than 32 levels"));
  }
}
