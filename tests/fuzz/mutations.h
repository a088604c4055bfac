// What the fuzz tests share: random numbers from a fixed seed, mutated text, and the question whether a call
// survives.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <random>
#include <string>
#include <utility>

#include "tensor/base/error.h"

namespace eddy::test {

using Random = std::mt19937_64;

// A number in [0, bound).
inline std::size_t below(Random& random, std::size_t bound) {
  return static_cast<std::size_t>(random() % bound);
}

// How much a mutation changes.
struct MutationSizes {
  std::size_t changes = 4;   // at most, and at least one
  std::size_t cut = 8;       // fewer bytes than this go
  std::size_t doubled = 40;  // fewer bytes than this come twice
};

// The text after some changes: a bit flipped, a stretch cut out, one of `pieces` put in, or a stretch
// doubled.
template <class Pieces>
std::string mutate_text(std::string text, Random& random, const Pieces& pieces,
                        const MutationSizes& sizes = {}) {
  const std::size_t changes = 1 + below(random, sizes.changes);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(random, text.size() + 1);
    switch (below(random, 4)) {
      case 0:
        if (at < text.size()) text[at] ^= static_cast<char>(1u << below(random, 8));
        break;
      case 1:
        text.erase(at, below(random, sizes.cut));
        break;
      case 2:
        text.insert(at, pieces[below(random, pieces.size())]);
        break;
      default:
        text.insert(at, text.substr(below(random, text.size() + 1), below(random, sizes.doubled)));
        break;
    }
  }
  return text;
}

// Whether `action` comes to its end. Any error but eddy's own fails the test.
template <class Action>
bool survives(Action&& action) {
  try {
    std::forward<Action>(action)();
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::exception& error) {
    FAIL_CHECK("another error: ", error.what());
    return false;
  }
}

}  // namespace eddy::test
