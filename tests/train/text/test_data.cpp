// Text data: hashing, tokenizers, splits, random batches and validation windows.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/files/sha256.h"
#include "train/text/corpus.h"
#include "train/text/tokenizer.h"
#include "train/words/utf8.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::vector<std::int32_t> counting(std::int64_t n) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

}  // namespace

// ---- SHA-256 --------------------------------------------------------------------------------------------

TEST_CASE("sha256 gives the digests of the published example messages") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256 does not depend on how the bytes are cut into pieces") {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<char>(i * 7));
  for (std::size_t length : {0u, 1u, 55u, 56u, 63u, 64u, 65u, 119u, 120u, 128u, 300u}) {
    const std::string whole = sha256_hex(std::string_view(bytes).substr(0, length));
    Sha256 pieces;
    for (std::size_t at = 0, size = 1; at < length; at += size, size = size * 2 + 1)
      pieces.update(std::string_view(bytes).substr(at, std::min(size, length - at)));
    CHECK(pieces.hex_digest() == whole);
  }
}

// ---- UTF-8 and tokenizers -------------------------------------------------------------------------------

TEST_CASE("utf8 reads back every valid code point it writes") {
  for (char32_t c : {U'\0', U'a', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\xd7ff', U'\xe000', U'\xffff',
                     U'\x10000', U'\x10ffff'}) {
    std::string text;
    append_utf8(text, c);
    const Utf8Char read = utf8_at(text, 0);
    CHECK(read.code_point == c);
    CHECK(read.bytes == static_cast<int>(text.size()));
    if (text.size() > 1) CHECK(utf8_at(text.substr(0, text.size() - 1), 0).bytes == 0);
  }
}

TEST_CASE("utf8 refuses overlong forms and surrogates and stray bytes") {
  for (const char* bytes : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
                            "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82", "\xe2(\xa1"})
    CHECK(utf8_at(bytes, 0).bytes == 0);
}

TEST_CASE("char tokenizer numbers the distinct code points by rank") {
  const auto tokenizer = make_tokenizer("char", "b\u00e9a\u20acb\U0001f600a");
  CHECK(tokenizer->name() == "char");
  CHECK(tokenizer->vocab_size() == 5);
  CHECK(tokenizer->encode("a\u00e9b\u20ac\U0001f600") == std::vector<std::int32_t>{0, 2, 1, 3, 4});
  CHECK(tokenizer->decode(std::vector<std::int32_t>{4, 3, 2, 1, 0}) == "\U0001f600\u20ac\u00e9ba");
  CHECK(tokenizer->encode("").empty());
  CHECK(tokenizer->decode({}).empty());
}

TEST_CASE("char tokenizer names an unknown character and its byte offset") {
  const auto tokenizer = make_tokenizer("char", "abc\u00e9");
  const std::string ascii = error_of<ValueError>([&] { tokenizer->encode("\u00e9bz"); });
  CHECK(contains(ascii, "'z'"));
  CHECK(contains(ascii, "offset 3"));
  const std::string wide = error_of<ValueError>([&] { tokenizer->encode("ab\u20ac"); });
  CHECK(contains(wide, "'\u20ac' (U+20AC)"));
  CHECK(contains(wide, "offset 2"));
  CHECK(contains(error_of<ValueError>([&] { tokenizer->encode("a\n"); }), "U+000A at byte offset 1"));
}

TEST_CASE("char tokenizer refuses invalid UTF-8 and an empty training text") {
  CHECK(contains(error_of<FormatError>([] { make_tokenizer("char", "ab\xff"); }), "0xff at offset 2"));
  const auto tokenizer = make_tokenizer("char", "ab");
  CHECK(contains(error_of<FormatError>([&] { tokenizer->encode("a\xc3"); }), "0xc3 at offset 1"));
  CHECK(contains(error_of<ValueError>([] { make_tokenizer("char", ""); }), "empty"));
}

TEST_CASE("byte tokenizers take every byte and give it back") {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const std::int32_t reserved : {0, 3}) {
    const auto tokenizer = make_tokenizer(reserved == 0 ? "byte" : "byte260", "");
    CHECK(tokenizer->vocab_size() == (reserved == 0 ? 256 : 260));
    const std::vector<std::int32_t> ids = tokenizer->encode(all);
    REQUIRE(ids.size() == 256);
    for (std::int32_t i = 0; i < 256; ++i) CHECK(ids[static_cast<std::size_t>(i)] == i + reserved);
    CHECK(tokenizer->decode(ids) == all);
  }
}

TEST_CASE("byte260 decodes ids without a byte to nothing") {
  const auto tokenizer = make_tokenizer("byte260", "");
  CHECK(tokenizer->decode(std::vector<std::int32_t>{0, 'a' + 3, 1, 2, 'b' + 3, 259}) == "ab");
}

TEST_CASE("the tokenizer ids reads token ids as numbers and writes them with a space behind each") {
  const auto tokenizer = make_tokenizer("ids", " 5 17\n\t3\r\n");
  CHECK(tokenizer->vocab_size() == 18);
  CHECK(tokenizer->encode("5 17\n3 ") == std::vector<std::int32_t>{5, 17, 3});
  CHECK(tokenizer->encode("\n").empty());
  CHECK(tokenizer->decode(std::vector<std::int32_t>{0, 17}) == "0 17 ");
  for (const char* const wrong : {"18", "-1", "+1", "1.5", "one", "99999999999", "1,2"})
    CHECK(contains(error_of<ValueError>([&] { tokenizer->encode("4 " + std::string(wrong)); }),
                   "at byte offset 2 is no id (whole numbers from 0 to 17"));
  std::vector<std::string> replaced;
  CHECK(tokenizer->with_known("1 two 3 two 18", replaced) == "1 3 ");
  CHECK(replaced == std::vector<std::string>{"two", "18"});
  const auto again = tokenizer_from_json(tokenizer->to_json());
  CHECK(again->name() == "ids");
  CHECK(again->vocab_size() == 18);
  CHECK(contains(error_of<ValueError>([] { make_tokenizer("ids", " \n"); }), "no ids"));
  CHECK(contains(error_of<ValueError>([] { static_cast<void>(ids_tokenizer(0)); }), "a vocabulary of 0"));
  for (const char* const json : {R"({"name":"ids"})", R"({"name":"ids","vocab":0})",
                                 R"({"name":"ids","vocab":2147483648})", R"({"name":"ids","vocab":"9"})"})
    CHECK_THROWS_AS(tokenizer_from_json(json), FormatError);
}

TEST_CASE("decoding id by id gives the text of the whole") {
  const std::string text = "na\u00efve \U0001f600 text";
  for (const char* name : {"char", "byte", "byte260"}) {
    const auto tokenizer = make_tokenizer(name, text);
    std::string streamed;
    for (const std::int32_t id : tokenizer->encode(text)) streamed += tokenizer->decode_one(id);
    CHECK(streamed == text);
  }
}

TEST_CASE("tokenizers refuse ids outside the vocabulary and unknown names") {
  for (const char* name : {"char", "byte", "byte260"}) {
    const auto tokenizer = make_tokenizer(name, "abc");
    const auto above = static_cast<std::int32_t>(tokenizer->vocab_size());
    CHECK(contains(error_of<ValueError>([&] { tokenizer->decode_one(-1); }), "-1"));
    CHECK(contains(error_of<ValueError>([&] { tokenizer->decode_one(above); }), std::to_string(above)));
  }
  CHECK(contains(error_of<ValueError>([] { make_tokenizer("words", "abc"); }), "char, byte, byte260"));
}

TEST_CASE("a tokenizer comes back from its JSON") {
  const std::string text = std::string("q\"\\\n\0\x7f", 6) + "\u00e9\u20ac\U0001f600";
  for (const char* name : {"char", "byte", "byte260"}) {
    const auto tokenizer = make_tokenizer(name, text);
    const auto again = tokenizer_from_json(tokenizer->to_json());
    CHECK(again->name() == name);
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    CHECK(again->encode(text) == tokenizer->encode(text));
    CHECK(again->to_json() == tokenizer->to_json());
  }
}

TEST_CASE("a broken tokenizer description is a format error") {
  for (const char* json :
       {"", "[", "3", "[]", "{}", R"({"name":4})", R"({"name":"words"})", R"({"name":"char"})",
        R"({"name":"char","characters":7})", R"({"name":"char","characters":""})",
        R"({"name":"char","characters":"ba"})", R"({"name":"char","characters":"aa"})",
        "{\"name\":\"char\",\"characters\":\"\xff\"}"})
    CHECK_THROWS_AS(tokenizer_from_json(json), FormatError);
}

// ---- splits, batches, windows ---------------------------------------------------------------------------

TEST_CASE("the split of tiny Shakespeare has the sizes the field reports") {
  CHECK(training_part(1115394, 0.9, 256) == 1003854);
  CHECK(window_count(1115394 - 1003854, 256) == 435);
  CHECK(training_part(25, 0.7, 3) == 17);
}

TEST_CASE("a split shorter than a window says the sizes") {
  CHECK(training_part(40, 0.9, 3) == 36);
  const std::string error = error_of<ValueError>([] { static_cast<void>(training_part(40, 0.9, 4)); });
  CHECK(contains(error, "36 for training and 4 for validation, and each needs 5"));
  CHECK_THROWS_AS(static_cast<void>(training_part(40, 0.1, 4)), ValueError);
  CHECK_THROWS_AS(static_cast<void>(training_part(0, 0.5, 1)), ValueError);
  CHECK_THROWS_AS(static_cast<void>(training_part(40, 0.9, 0)), ValueError);
  for (const double fraction : {0.0, 1.0, -0.5, 2.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(static_cast<void>(training_part(40, fraction, 2)), ValueError);
}

TEST_CASE("uniform draws below a bound are level and stay below it") {
  // 12000 draws over 12 values: each count has mean 1000 and standard deviation 30.3; 6 of those are allowed.
  const RandomKey key = random_key(5, "test.uniform", 0);
  std::vector<int> counts(12);
  for (std::uint64_t i = 0; i < 12000; ++i) ++counts.at(uniform_below(key, i, 12));
  for (const int count : counts) CHECK(std::abs(count - 1000) <= 182);
  CHECK(uniform_below(key, 7, 1) == 0);
}

TEST_CASE("uniform draws reject what would favour small results") {
  // With a bound of 3/4 of 2^64 a plain remainder would land in the first third of the range every second
  // time.
  const RandomKey key = random_key(5, "test.uniform", 1);
  const std::uint64_t bound = 3ull << 62;
  int low = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) low += uniform_below(key, i, bound) < bound / 3 ? 1 : 0;
  CHECK(std::abs(low - 1000) <= 155);  // 6 standard deviations of 25.8
}

TEST_CASE("a batch holds windows of the text with targets one place further") {
  const std::vector<std::int32_t> tokens = counting(1000);
  std::vector<std::int32_t> inputs(8 * 16), targets(8 * 16);
  sample_batch(tokens, 1, 2, 0, 8, 16, inputs.data(), targets.data());
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(inputs[row * 16 + i] == inputs[row * 16] + static_cast<std::int32_t>(i));
      CHECK(targets[row * 16 + i] == inputs[row * 16 + i] + 1);
    }
}

TEST_CASE("batch starts cover every place from the first to the last") {
  const std::vector<std::int32_t> tokens = counting(10);
  std::vector<std::int32_t> inputs(4), targets(4);
  std::map<std::int32_t, int> starts;
  for (std::uint64_t step = 0; step < 1400; ++step) {
    sample_batch(tokens, 3, step, 0, 1, 3, inputs.data(), targets.data());
    ++starts[inputs[0]];
  }
  REQUIRE(starts.size() == 7);  // 0..6: the last window has the inputs 6 7 8 and the targets 7 8 9
  CHECK(starts.rbegin()->first == 6);
  for (const auto& [start, count] : starts)
    CHECK(std::abs(count - 200) <= 79);  // 6 standard deviations of 13.1
}

TEST_CASE("the data order is a function of seed and step alone") {
  const std::vector<std::int32_t> tokens = counting(5000);
  const auto draw = [&](std::uint64_t seed, std::uint64_t step, std::uint64_t micro, std::int64_t batch) {
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * 4)), targets(inputs.size());
    sample_batch(tokens, seed, step, micro, batch, 4, inputs.data(), targets.data());
    return inputs;
  };
  CHECK(draw(1, 7, 0, 8) == draw(1, 7, 0, 8));
  CHECK(draw(1, 7, 0, 8) != draw(1, 8, 0, 8));
  CHECK(draw(1, 7, 0, 8) != draw(2, 7, 0, 8));
  // Two micro-batches of 4 rows are the rows of one batch of 8.
  std::vector<std::int32_t> halves = draw(1, 7, 0, 4);
  const std::vector<std::int32_t> second = draw(1, 7, 1, 4);
  halves.insert(halves.end(), second.begin(), second.end());
  CHECK(halves == draw(1, 7, 0, 8));
}

TEST_CASE("a batch from the shortest possible text is that text") {
  const std::vector<std::int32_t> tokens = counting(4);
  std::vector<std::int32_t> inputs(3, -1), targets(3, -1);
  sample_batch(tokens, 1, 0, 0, 1, 3, inputs.data(), targets.data());
  CHECK(inputs == std::vector<std::int32_t>{0, 1, 2});
  CHECK(targets == std::vector<std::int32_t>{1, 2, 3});
  CHECK_THROWS_AS(sample_batch(tokens, 1, 0, 0, 1, 4, inputs.data(), targets.data()), ValueError);
  CHECK_THROWS_AS(sample_batch(tokens, 1, 0, 0, 0, 3, inputs.data(), targets.data()), ValueError);
  CHECK_THROWS_AS(sample_batch(tokens, 1, 0, 0, 1, 0, inputs.data(), targets.data()), ValueError);
}

TEST_CASE("validation windows visit the text once without overlap") {
  const std::vector<std::int32_t> tokens = counting(12);
  REQUIRE(window_count(12, 4) == 2);
  CHECK(window_count(13, 4) == 3);
  CHECK(window_count(0, 4) == 0);
  CHECK(window_count(4, 4) == 0);
  std::vector<std::int32_t> inputs(8), targets(8);
  read_windows(tokens, 4, 0, 2, inputs.data(), targets.data());
  CHECK(inputs == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(targets == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  read_windows(tokens, 4, 1, 1, inputs.data(), targets.data());
  CHECK(inputs[0] == 4);
  CHECK(contains(error_of<ValueError>([&] { read_windows(tokens, 4, 1, 2, inputs.data(), targets.data()); }),
                 "2 from 1 on, of 2"));
  CHECK_THROWS_AS(read_windows(tokens, 4, -1, 1, inputs.data(), targets.data()), ValueError);
  CHECK_THROWS_AS(window_count(12, 0), ValueError);
}
