// Tokenizers on hostile input: random bytes as text, random ids, and mutated descriptions. Whatever comes,
// the answer is a result or an eddy::Error, and what was encoded decodes to itself. Fixed seed, so a failure
// repeats; run with the sanitizers on.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/fuzz/mutations.h"
#include "train/text/tokenizer.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

std::string random_bytes(Random& random, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text.push_back(static_cast<char>(random() & 0xff));
  return text;
}

// Code points of every length and the borders between them, without the surrogates.
char32_t random_code_point(Random& random) {
  static constexpr std::array<char32_t, 14> kBorders{0,       0x7f,    0x80,     0x7ff,   0x800,
                                                     0xd7ff,  0xe000,  0xfffd,   0xffff,  0xfeff,
                                                     0x10000, 0x3ffff, 0x10fffe, 0x10ffff};
  if (below(random, 4) == 0) return kBorders[below(random, kBorders.size())];
  static constexpr std::array<std::size_t, 4> kEnds{0x80, 0x800, 0x10000, 0x110000};
  const auto code_point = static_cast<char32_t>(below(random, kEnds[below(random, kEnds.size())]));
  return code_point >= 0xd800 && code_point < 0xe000 ? code_point - 0x800 : code_point;
}

// UTF-8 from the bit layout of RFC 3629, apart from the library's own.
std::string utf8(char32_t c) {
  std::string bytes;
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static constexpr std::array<unsigned, 4> kLead{0x00, 0xc0, 0xe0, 0xf0};
  bytes.push_back(static_cast<char>(kLead[static_cast<std::size_t>(more)] | (c >> (6 * more))));
  while (more-- > 0) bytes.push_back(static_cast<char>(0x80 | (c >> (6 * more) & 0x3f)));
  return bytes;
}

std::string random_utf8(Random& random, std::size_t characters) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) text += utf8(random_code_point(random));
  return text;
}

bool ids_in_range(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return std::all_of(ids.begin(), ids.end(),
                     [&](std::int32_t id) { return id >= 0 && id < tokenizer.vocab_size(); });
}

std::string decode_one_by_one(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += tokenizer.decode_one(id);
  return text;
}

// Text goes through the tokenizer and back, whole and id by id.
void check_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  CHECK(ids_in_range(tokenizer, ids));
  CHECK(tokenizer.decode(ids) == text);
  CHECK(decode_one_by_one(tokenizer, ids) == text);
}

std::string mutate_vocabulary(std::string text, Random& random) {
  static const std::array<std::string, 24> kPieces = {"{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      "\"",
                                                      "\\",
                                                      ":",
                                                      ",",
                                                      "null",
                                                      "\"char\"",
                                                      "\"byte\"",
                                                      "\"byte260\"",
                                                      "\"\"",
                                                      "1e999",
                                                      "\\u0000",
                                                      "\\ud800",
                                                      "\\udc00",
                                                      "\\u00e9",
                                                      "\xff",
                                                      "\xc3",
                                                      "\xed\xa0\x80",
                                                      std::string(1, '\0'),
                                                      "\"name\":",
                                                      "[[[[[[[[[[[[[[[["};
  return mutate_text(std::move(text), random, kPieces, {3, 6, 12});
}

}  // namespace

TEST_CASE("byte tokenizers give every text back") {
  Random random(20240921);
  for (const char* name : {"byte", "byte260"}) {
    CAPTURE(name);
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(name, "");
    check_round_trip(*tokenizer, "");
    for (int i = 0; i < 300; ++i) check_round_trip(*tokenizer, random_bytes(random, below(random, 200)));
    check_round_trip(*tokenizer_from_json(tokenizer->to_json()), random_bytes(random, 5000));
  }
}

TEST_CASE("a char tokenizer gives every text of its characters back") {
  Random random(20240922);
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_utf8(random, 1 + below(random, 80));
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("char", text);
    CHECK(tokenizer->vocab_size() <= static_cast<std::int64_t>(text.size()));
    check_round_trip(*tokenizer, text);
    const std::unique_ptr<Tokenizer> copy = tokenizer_from_json(tokenizer->to_json());
    CHECK(copy->to_json() == tokenizer->to_json());
    CHECK(copy->encode(text) == tokenizer->encode(text));
  }
}

TEST_CASE("random bytes and ids through a char tokenizer do no more than raise an eddy error") {
  Random random(20240923);
  int made = 0, encoded = 0, decoded = 0;
  constexpr int kRounds = 600;
  for (int i = 0; i < kRounds; ++i) {
    // Mostly valid text with some bytes broken, so that errors come late too.
    std::string text = random_utf8(random, 1 + below(random, 12));
    for (std::size_t breaks = below(random, 3); breaks > 0; --breaks)
      text[below(random, text.size())] = static_cast<char>(random() & 0xff);
    if (below(random, 8) == 0) text = random_bytes(random, below(random, 20));
    std::unique_ptr<Tokenizer> tokenizer;
    made += survives([&] { tokenizer = make_tokenizer("char", text); }) ? 1 : 0;
    if (tokenizer == nullptr) tokenizer = make_tokenizer("char", "abc \xc3\xa9");
    std::string other = below(random, 2) == 0 ? text : random_bytes(random, below(random, 6));
    if (below(random, 4) == 0) other = utf8(random_code_point(random));
    std::string back = other;
    encoded += survives([&] { back = tokenizer->decode(tokenizer->encode(other)); }) ? 1 : 0;
    CHECK(back == other);
    const std::vector<std::int32_t> ids{static_cast<std::int32_t>(below(random, 8)),
                                        static_cast<std::int32_t>(random() >> (32 + below(random, 32)))};
    const bool fits = ids_in_range(*tokenizer, ids);
    CHECK(survives([&] { static_cast<void>(tokenizer->decode(ids)); }) == fits);
    decoded += fits ? 1 : 0;
  }
  // All answers must occur, or the inputs test nothing.
  for (const int count : {made, encoded, decoded}) {
    CHECK(count > kRounds / 50);
    CHECK(count < kRounds * 49 / 50);
  }
}

TEST_CASE("no mutation of a tokenizer's description does more than raise an eddy error") {
  Random random(20240924);
  int accepted = 0;
  constexpr int kMutants = 6000;
  const std::array<std::string, 4> seeds{
      make_tokenizer("char", "the quick \"brown\" \\ fox\n\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x8a")->to_json(),
      make_tokenizer("char", "a")->to_json(), make_tokenizer("byte", "")->to_json(),
      make_tokenizer("byte260", "")->to_json()};
  for (int i = 0; i < kMutants; ++i) {
    const std::string json = mutate_vocabulary(seeds[below(random, seeds.size())], random);
    CAPTURE(json);
    std::unique_ptr<Tokenizer> tokenizer;
    if (!survives([&] { tokenizer = tokenizer_from_json(json); })) continue;
    ++accepted;
    // What was accepted is a whole tokenizer: all its ids decode, and its own description gives it again.
    REQUIRE(tokenizer->vocab_size() > 0);
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokenizer->vocab_size()));
    for (std::size_t id = 0; id < all.size(); ++id) all[id] = static_cast<std::int32_t>(id);
    const std::string text = tokenizer->decode(all);
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    CHECK(tokenizer_from_json(tokenizer->to_json())->to_json() == tokenizer->to_json());
  }
  CHECK(accepted > kMutants / 50);
  CHECK(accepted < kMutants * 9 / 10);
}

TEST_CASE("a description nested without end is refused") {
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string deep;
    for (int i = 0; i < 200'000; ++i) deep += open;
    CHECK_FALSE(survives([&] { static_cast<void>(tokenizer_from_json(deep)); }));
    CHECK_FALSE(survives([&] { static_cast<void>(tokenizer_from_json("{\"name\":" + deep)); }));
  }
}
