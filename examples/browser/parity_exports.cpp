// How a page's script calls parity.h, as exports.cpp does for texts.
#include <emscripten.h>

#include <memory>
#include <vector>

#include "examples/browser/guarded.h"
#include "examples/browser/parity.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace {

using namespace eddy;
using namespace eddy::browser;

std::unique_ptr<Parity> parity;

Parity& begun_parity() {
  if (!parity) fail<ValueError>("page: no parity model has begun (call parity_begin before it)");
  return *parity;
}

}  // namespace

extern "C" {

// The text of the failure of the last call of a page's function; empty where it did not fail.
EMSCRIPTEN_KEEPALIVE const char* page_error() {
  return last_error().c_str();
}

// Begins the parity model anew, with or without its recurrence.
EMSCRIPTEN_KEEPALIVE int parity_begin(int seed, int recurrent) {
  return guarded([&] {
    set_thread_count(1);
    parity = std::make_unique<Parity>(static_cast<std::uint64_t>(seed), recurrent != 0);
    return 0;
  });
}
// One step of training; returns its loss.
EMSCRIPTEN_KEEPALIVE double parity_step() {
  return guarded([&] { return begun_parity().step(); });
}
// The share of right answers on new streams of so many bits.
EMSCRIPTEN_KEEPALIVE double parity_accuracy(int bits) {
  return guarded([&] { return begun_parity().accuracy(bits); });
}
// The probability of odd behind each of these bits.
EMSCRIPTEN_KEEPALIVE const float* parity_answers(const int* bits, int count) {
  return guarded([&] {
    static std::vector<float> floats;
    if (count < 1) fail<ValueError>("page: an answer to {} bits", count);
    floats = begun_parity().answers({bits, bits + count});
    return static_cast<const float*>(floats.data());
  });
}
// The states behind the bits of streams, three floats each: sideways, upwards, and 1 for odd.
EMSCRIPTEN_KEEPALIVE const float* parity_states(int streams, int bits) {
  return guarded([&]() -> const float* {
    static std::vector<float> floats;
    floats.clear();
    for (const Parity::Point& point : begun_parity().states(streams, bits))
      floats.insert(floats.end(), {point.sideways, point.upwards, point.odd ? 1.0f : 0.0f});
    return floats.data();
  });
}

}  // extern "C"
