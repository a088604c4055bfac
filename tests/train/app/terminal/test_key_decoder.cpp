// Keys and pasted texts, told apart.
#include "train/app/terminal/key_decoder.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace {

using eddy::app::KeyDecoder;

// All pieces in a row, those that were pasted in angle brackets.
std::string pieces(KeyDecoder& keys, bool quiet) {
  std::string all;
  while (const std::optional<KeyDecoder::Piece> piece = keys.next(quiet))
    all += piece->pasted ? "<" + piece->text + ">" : piece->text;
  return all;
}

std::string decoded(const std::string& bytes) {
  KeyDecoder keys;
  keys.add(bytes);
  return pieces(keys, true);
}

}  // namespace

TEST_CASE("keys: a text between the marks of a terminal is pasted, whatever it holds") {
  CHECK(decoded("a\x1b[200~b\rc\r\nd\x1b[A\n\x1b[201~e\r") == "a<b\nc\nd\x1b[A\n>e\n");
  CHECK(decoded("\x1b[200~\x1b[201~") == "<>");
  CHECK(decoded("\x1b[200~a\x1b[201~\x1b[200~b\x1b[201~") == "<a><b>");
}

TEST_CASE("keys: text behind a line end that arrived with it is pasted, and its last line end is a key") {
  CHECK(decoded("a\rb\rc\r") == "<a\nb\nc>\n");
  CHECK(decoded("a\r\nb\r\n\r\n") == "<a\nb>\n");
  CHECK(decoded("a\rb") == "<a\nb>");
  CHECK(decoded("\x01"
                "a\rb\r\x04") == "\x01<a\nb>\n\x04");
}

TEST_CASE("keys: a line and control characters are typed") {
  CHECK(decoded("/state\r") == "/state\n");
  CHECK(decoded("/state\r\n") == "/state\n");
  CHECK(decoded("\r\r") == "\n\n");
  CHECK(decoded("\x1b[A\r") == "\x1b[A\n");
  CHECK(decoded("a\r\x04") == "a\n\x04");
  CHECK(decoded("\x1b") == "\x1b");
}

TEST_CASE("keys: what the next bytes decide waits for them, or for quiet") {
  KeyDecoder keys;
  keys.add("a\r");
  CHECK(pieces(keys, false).empty());
  CHECK(keys.waits());
  keys.add("b\r");
  CHECK(pieces(keys, false).empty());
  CHECK(pieces(keys, true) == "<a\nb>\n");
  keys.add("x\x1b[2");
  CHECK(pieces(keys, false) == "x");
  keys.add("00~a");
  CHECK(pieces(keys, true).empty());  // its mark may take any time
  keys.add("\x1b[20");
  CHECK(pieces(keys, true).empty());
  keys.add("1~");
  CHECK(pieces(keys, false) == "<a>");
  keys.add("\xe2\x82");
  CHECK(pieces(keys, false).empty());
  keys.add("\xac");
  CHECK(pieces(keys, false) == "\xe2\x82\xac");
  keys.add("\x1b[200~a");
  keys.clear();
  CHECK(!keys.waits());
  keys.add("b");
  CHECK(pieces(keys, false) == "b");
}
