// How the page's script calls page.h: functions with C's names. Models and texts are known by numbers. What is longer than a
// number is left at an address that the next call of the same function may overwrite. A function that fails returns -1, or
// NaN, or null, and page_error() says why.
#include <emscripten.h>

#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "examples/browser/page.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace {

using namespace eddy;
using namespace eddy::browser;

constexpr int kTexts = 2;

struct Loaded {
  Reader reader;
  Text texts[kTexts];
};

std::vector<Loaded> models;
std::vector<StateView> views;
std::unique_ptr<Parity> parity;
std::string error;

// What `body` returns, or `failed` where it throws.
template <class Result, class Body>
Result guarded(Result failed, Body&& body) {
  try {
    return body();
  } catch (const std::exception& caught) {
    error = caught.what();
    return failed;
  }
}

Text& text_of(int model, int text) {
  if (text < 0 || text >= kTexts) fail<ValueError>("page: text {} (0 or 1)", text);
  return models.at(static_cast<std::size_t>(model)).texts[text];
}

}  // namespace

extern "C" {

// The text of the last failure.
EMSCRIPTEN_KEEPALIVE const char* page_error() {
  return error.c_str();
}

// Reads a model file; returns the model's number.
EMSCRIPTEN_KEEPALIVE int page_load(const char* path) {
  return guarded(-1, [&] {
    set_thread_count(1);
    models.push_back({load_model(path), {}});
    return static_cast<int>(models.size()) - 1;
  });
}

// The number of parameters.
EMSCRIPTEN_KEEPALIVE double page_parameters(int model) {
  return guarded(std::nan(""), [&] {
    return static_cast<double>(
        models.at(static_cast<std::size_t>(model)).reader.model->params().values().elements());
  });
}

// Begins a text anew.
EMSCRIPTEN_KEEPALIVE int page_restart(int model, int text) {
  return guarded(-1, [&] {
    text_of(model, text) = Text();
    return 0;
  });
}

EMSCRIPTEN_KEEPALIVE int page_read(int model, int text, const int* ids, int count) {
  return guarded(-1, [&] {
    text_of(model, text).read(models.at(static_cast<std::size_t>(model)).reader, {ids, ids + count});
    return 0;
  });
}

// The token drawn at a temperature; 0 takes the most probable one.
EMSCRIPTEN_KEEPALIVE int page_draw(int model, int text, double temperature, int seed) {
  return guarded(-1, [&] {
    return text_of(model, text).draw({.temperature = temperature, .seed = static_cast<std::uint64_t>(seed)});
  });
}

EMSCRIPTEN_KEEPALIVE const float* page_logits(int model, int text) {
  return guarded<const float*>(nullptr, [&] { return text_of(model, text).logits().data(); });
}

// Looks at the state of a text; returns the number of its tensors, which the functions below then tell of.
EMSCRIPTEN_KEEPALIVE int page_views(int model, int text) {
  return guarded(-1, [&] {
    views = text_of(model, text).views();
    return static_cast<int>(views.size());
  });
}
EMSCRIPTEN_KEEPALIVE const char* page_view_name(int view) {
  return views[static_cast<std::size_t>(view)].name.c_str();
}
EMSCRIPTEN_KEEPALIVE int page_view_rows(int view) {
  return static_cast<int>(views[static_cast<std::size_t>(view)].rows);
}
EMSCRIPTEN_KEEPALIVE int page_view_columns(int view) {
  return static_cast<int>(views[static_cast<std::size_t>(view)].columns);
}
EMSCRIPTEN_KEEPALIVE double page_view_norm(int view) {
  return views[static_cast<std::size_t>(view)].norm;
}
EMSCRIPTEN_KEEPALIVE int page_view_frozen(int view) {
  return views[static_cast<std::size_t>(view)].frozen ? 1 : 0;
}
EMSCRIPTEN_KEEPALIVE const float* page_view_values(int view) {
  return views[static_cast<std::size_t>(view)].values.data();
}

EMSCRIPTEN_KEEPALIVE int page_forget(int model, int text, const char* name) {
  return guarded(-1, [&] {
    text_of(model, text).forget(name);
    return 0;
  });
}
EMSCRIPTEN_KEEPALIVE int page_freeze(int model, int text, const char* name, int on) {
  return guarded(-1, [&] {
    text_of(model, text).freeze(name, on != 0);
    return 0;
  });
}
EMSCRIPTEN_KEEPALIVE int page_swap(int model) {
  return guarded(-1, [&] {
    text_of(model, 0).swap_state(text_of(model, 1));
    return 0;
  });
}

// Begins the parity model anew.
EMSCRIPTEN_KEEPALIVE int parity_begin(int seed) {
  return guarded(-1, [&] {
    set_thread_count(1);
    parity = std::make_unique<Parity>(static_cast<std::uint64_t>(seed));
    return 0;
  });
}
// One step of training; returns its loss.
EMSCRIPTEN_KEEPALIVE double parity_step() {
  return guarded(std::nan(""), [&] { return parity->step(); });
}
// The share of right answers on new streams of so many bits.
EMSCRIPTEN_KEEPALIVE double parity_accuracy(int bits) {
  return guarded(std::nan(""), [&] { return parity->accuracy(bits); });
}
// The states behind the bits of streams, three floats each: sideways, upwards, and 1 for odd.
EMSCRIPTEN_KEEPALIVE const float* parity_states(int streams, int bits) {
  return guarded<const float*>(nullptr, [&]() -> const float* {
    static std::vector<float> floats;
    floats.clear();
    for (const Parity::Point& point : parity->states(streams, bits))
      floats.insert(floats.end(), {point.sideways, point.upwards, point.odd ? 1.0f : 0.0f});
    return floats.data();
  });
}

}  // extern "C"
