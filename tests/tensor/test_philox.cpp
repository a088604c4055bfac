// Philox4x32-10 against the known answers published with Random123, and what this project builds on it: keys
// by name, words by element, numbers in [0, 1).
#include "tensor/random/philox.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace {

using namespace eddy;

void check_words(const Philox4& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  CHECK(got.word[0] == a);
  CHECK(got.word[1] == b);
  CHECK(got.word[2] == c);
  CHECK(got.word[3] == d);
}

std::pair<std::uint32_t, std::uint32_t> bits(const RandomKey& key) {
  return {key.key0, key.key1};
}

}  // namespace

TEST_CASE("philox: the published known answers") {
  check_words(philox4x32({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  const std::uint32_t ones = 0xffffffffu;
  check_words(philox4x32({{ones, ones, ones, ones}}, ones, ones), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u,
              0x6d5451fdu);
  check_words(philox4x32({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u),
              0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u);
}

TEST_CASE("philox: an element's word is one of the four of its block and the step is the upper counter") {
  const RandomKey key = random_key(7, "some.stream", 0x1'0000'0002ull);
  const std::uint64_t block = 0x3'0000'0005ull;
  const Philox4 words = key.words(block);
  const Philox4 direct = philox4x32({{5, 3, 2, 1}}, key.key0, key.key1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK(words.word[i] == direct.word[i]);
    CHECK(key.word(4 * block + i) == words.word[i]);
  }
}

TEST_CASE("philox: keys differ by seed and stream and index and are the same each time") {
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  const char* const streams[] = {"", "a", "b", "layers.0.mlp.drop", "layers.1.mlp.drop"};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const char* stream : streams) {
      keys.insert(bits(random_key(seed, stream, 0)));
      for (std::uint64_t index = 0; index < 20; ++index)
        keys.insert(bits(random_key(seed, stream, index, 0)));
    }
  CHECK(keys.size() == 20 * 5 * 21);
  CHECK(bits(random_key(3, "a", 1)) == bits(random_key(3, "a", 2)));  // the step is in the counter
  CHECK(random_key(3, "a", 2).step == 2);
  CHECK(random_key(3, "a", 9, 2).step == 2);
}

TEST_CASE("philox: uniform numbers fill the half-open unit interval evenly") {
  CHECK(uniform01(0) == 0.0f);
  CHECK(uniform01(0xffffffffu) == 1.0f - 0x1p-24f);
  CHECK(uniform01(0xffu) == 0.0f);
  CHECK(uniform01(0x100u) == 0x1p-24f);

  constexpr int kBins = 64, kDraws = 64 * 1000;
  std::vector<int> count(kBins, 0);
  const RandomKey key = random_key(1, "test.uniform", 0);
  double mean = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const float u = uniform01(key.word(i));
    ++count[static_cast<std::size_t>(u * kBins)];
    mean += static_cast<double>(u) / kDraws;
  }
  double chi_square = 0;
  for (const int c : count) chi_square += (c - 1000.0) * (c - 1000.0) / 1000.0;
  // 63 degrees of freedom: mean 63, deviation sqrt(126) = 11.2; five of them on either side.
  CHECK(std::abs(chi_square - 63) <= 56);
  CHECK(std::abs(mean - 0.5) <= 5 / std::sqrt(12.0 * kDraws));
}

TEST_CASE("a key with a base in memory draws the words of the step that lies there") {
  std::uint64_t base = 0;
  RandomKey moving = random_key(3, "moving", 2);
  moving.step_base = &base;
  for (const std::uint64_t step : {0ull, 1ull, 0xfffffffffull}) {
    base = step;
    const RandomKey fixed = random_key(3, "moving", 2 + step);
    CHECK(moving.current_step() == 2 + step);
    for (const std::uint64_t element : {0ull, 3ull, 1000001ull})
      CHECK(moving.word(element) == fixed.word(element));
  }
}
