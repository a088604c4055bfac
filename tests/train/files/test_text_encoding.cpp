// Byte order marks, and texts in UTF-16 and UTF-32.
#include "train/files/text_encoding.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace std::string_literals;

// "A\u20ac\U0001f600" in each encoding, without a mark.
const std::string kUtf8 = "A\u20ac\U0001f600";
const std::string kUtf16Le = "A\0\xac\x20\x3d\xd8\0\xde"s, kUtf16Be = "\0A\x20\xac\xd8\x3d\xde\0"s;
const std::string kUtf32Le = "A\0\0\0\xac\x20\0\0\0\xf6\x01\0"s,
                  kUtf32Be = "\0\0\0A\0\0\x20\xac\0\x01\xf6\0"s;

// ASCII text in UTF-16 or UTF-32, little-endian.
std::string widened(const std::string& text, std::size_t unit) {
  std::string wide;
  for (const char c : text) wide += c + std::string(unit - 1, '\0');
  return wide;
}

}  // namespace

TEST_CASE("text encoding: a byte order mark names the encoding and is dropped") {
  CHECK(decode_text("\xef\xbb\xbf" + kUtf8, "f") == kUtf8);
  CHECK(decode_text("\xff\xfe" + kUtf16Le, "f") == kUtf8);
  CHECK(decode_text("\xfe\xff" + kUtf16Be, "f") == kUtf8);
  CHECK(decode_text("\xff\xfe\0\0"s + kUtf32Le, "f") == kUtf8);
  CHECK(decode_text("\0\0\xfe\xff"s + kUtf32Be, "f") == kUtf8);
  CHECK(decode_text("", "f").empty());
  CHECK(decode_text("\xef\xbb\xbf", "f").empty());
  CHECK(decode_text("a\xef\xbb\xbf", "f") == "a\xef\xbb\xbf");  // inside a text it is a character
}

TEST_CASE("text encoding: bytes without a mark stay as they are") {
  for (const std::string& bytes : {"plain"s, "caf\xe9"s, "\xff"s, "a\0b"s, "\0"s, "\1\0\2\0\3\0\4\0"s})
    CHECK(decode_text(bytes, "f") == bytes);
}

TEST_CASE("text encoding: UTF-16 and UTF-32 without a mark are named") {
  const std::string text = "The cat sat on a mat.\r\nAnd saw rain.\n";
  const auto refusal = [](const std::string& bytes) {
    return error_of<FormatError>([&] { decode_text(bytes, "a.txt"); });
  };
  CHECK(contains(refusal(widened(text, 2)), "a.txt looks like UTF-16LE without a byte order mark"));
  CHECK(contains(refusal(std::string(1, '\0') + widened(text, 2).substr(0, 70)), "UTF-16BE"));
  CHECK(contains(refusal(widened(text, 4)), "UTF-32LE"));
  CHECK(contains(refusal(std::string(3, '\0') + widened(text, 4).substr(0, 145)), "UTF-32BE"));
}

TEST_CASE("text encoding: UTF-16 without a mark is named in other scripts too") {
  for (const std::u16string text :
       {u"\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439 \u043c\u0438\u0440\n",
        u"\u4f60\u597d\u4e16\u754c\u3002\u4e00\u4e8c\u4e09\u56db\uff01\n"}) {
    std::string little;
    for (int line = 0; line < 20; ++line)
      for (const char16_t c : text) {
        little += static_cast<char>(c & 0xff);
        little += static_cast<char>(c >> 8);
      }
    CHECK(encoding_of(little).name == "UTF-16LE"s);
  }
}

TEST_CASE("text encoding: texts in UTF-8 and other bytes are not taken for UTF-16") {
  std::string noise;
  for (std::uint32_t i = 0; i < 5000; ++i) noise += static_cast<char>(i * i * 2654435761u >> 24);
  for (const std::string& bytes :
       {"Bush hid the facts"s, "a\0b c d e f g h i j k l m n"s, noise, noise.substr(1),
        "\u4f60\u597d\u4e16\u754c\u3002\u4f60\u597d\u4e16\u754c\u3002\n"s,
        "caf\xe9 cr\xe8me br\xfbl\xe9"
        "e\n"s})
    CHECK(encoding_of(bytes).unit == 1);
}

TEST_CASE("text encoding: what UTF-16 and UTF-32 do not allow is refused with its place") {
  const auto refusal = [](const std::string& bytes) {
    return error_of<FormatError>([&] { decode_text(bytes, "a.txt"); });
  };
  CHECK(contains(refusal("\xff\xfe"
                         "A\0B"s),
                 "half a character at byte 4"));
  CHECK(contains(refusal("\xff\xfe\x3d\xd8"s), "half a pair of surrogates at byte 2"));
  CHECK(contains(refusal("\xff\xfe\x3d\xd8"
                         "A\0"s),
                 "half a pair of surrogates at byte 2"));
  CHECK(contains(refusal("\xff\xfe\0\xde"s), "no character at byte 2"));
  CHECK(contains(refusal("\xff\xfe\0\0\0\0\x11\0"s), "no character at byte 4"));
}

TEST_CASE("text encoding: the line that converts a file leaves it under its name") {
  const TempFolder folder;
  const std::string path = folder.write("it's.txt", "caf\xe9");
  REQUIRE(std::system(conversion_line("WINDOWS-1252", {path}).c_str()) == 0);
  CHECK(read_bytes(path) == "caf\u00e9");
  const std::string other = folder.write("b.txt", "\xe9");
  folder.write("it's.txt", "\xe8");
  REQUIRE(std::system(conversion_line("WINDOWS-1252", {path, other}).c_str()) == 0);
  CHECK(read_bytes(path) == "\u00e8");
  CHECK(read_bytes(other) == "\u00e9");
}
