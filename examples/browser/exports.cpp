// How the page's script calls page.h: functions with C's names. Models and texts are known by numbers. What is longer
// than a number is left at an address that the next call of the same function may overwrite.
#include <emscripten.h>

#include <vector>

#include "examples/browser/guarded.h"
#include "examples/browser/page.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::browser;

constexpr int kTexts = 2;

struct Loaded {
  Reader reader;
  Text texts[kTexts];
};

std::vector<Loaded> models;
std::vector<StateView> views;

Loaded& model_of(int model) {
  if (model < 0 || static_cast<std::size_t>(model) >= models.size())
    fail<ValueError>("page: model {} of {} (page_load returns the numbers)", model, models.size());
  return models[static_cast<std::size_t>(model)];
}

Text& text_of(int model, int text) {
  if (text < 0 || text >= kTexts) fail<ValueError>("page: text {} (0 or 1)", text);
  return model_of(model).texts[text];
}

const StateView& view_of(int view) {
  if (view < 0 || static_cast<std::size_t>(view) >= views.size())
    fail<ValueError>("page: part {} of {} of a state (page_views counts them)", view, views.size());
  return views[static_cast<std::size_t>(view)];
}

}  // namespace

extern "C" {

// Reads a model file; returns the model's number.
EMSCRIPTEN_KEEPALIVE int page_load(const char* path) {
  return guarded([&] {
    set_thread_count(1);
    models.push_back({load_model(path), {}});
    return static_cast<int>(models.size()) - 1;
  });
}

// The number of parameters.
EMSCRIPTEN_KEEPALIVE double page_parameters(int model) {
  return guarded(
      [&] { return static_cast<double>(model_of(model).reader.model->params().values().elements()); });
}

// Begins a text anew.
EMSCRIPTEN_KEEPALIVE int page_restart(int model, int text) {
  return guarded([&] {
    text_of(model, text) = Text();
    return 0;
  });
}

EMSCRIPTEN_KEEPALIVE int page_read(int model, int text, const int* ids, int count) {
  return guarded([&] {
    if (count < 0) fail<ValueError>("page: {} tokens to read", count);
    text_of(model, text).read(model_of(model).reader, {ids, ids + count});
    return 0;
  });
}

// The token drawn at a temperature; 0 takes the most probable one.
EMSCRIPTEN_KEEPALIVE int page_draw(int model, int text, double temperature, int seed) {
  return guarded([&] {
    return text_of(model, text).draw({.temperature = temperature, .seed = static_cast<std::uint64_t>(seed)});
  });
}

EMSCRIPTEN_KEEPALIVE const float* page_logits(int model, int text) {
  return guarded([&] {
    const std::vector<float>& logits = text_of(model, text).logits();
    if (logits.empty()) fail<ValueError>("page: text {} has no logits before a token is read", text);
    return logits.data();
  });
}

// Looks at the state of a text; returns the number of its tensors, which the functions below then tell of.
EMSCRIPTEN_KEEPALIVE int page_views(int model, int text) {
  return guarded([&] {
    views = text_of(model, text).views();
    return static_cast<int>(views.size());
  });
}
EMSCRIPTEN_KEEPALIVE const char* page_view_name(int view) {
  return guarded([&] { return view_of(view).name.c_str(); });
}
EMSCRIPTEN_KEEPALIVE int page_view_rows(int view) {
  return guarded([&] { return static_cast<int>(view_of(view).rows); });
}
EMSCRIPTEN_KEEPALIVE int page_view_columns(int view) {
  return guarded([&] { return static_cast<int>(view_of(view).columns); });
}
EMSCRIPTEN_KEEPALIVE double page_view_norm(int view) {
  return guarded([&] { return view_of(view).norm; });
}
EMSCRIPTEN_KEEPALIVE int page_view_frozen(int view) {
  return guarded([&] { return view_of(view).frozen ? 1 : 0; });
}
EMSCRIPTEN_KEEPALIVE const float* page_view_values(int view) {
  return guarded([&] { return view_of(view).values.data(); });
}

EMSCRIPTEN_KEEPALIVE int page_forget(int model, int text, const char* name) {
  return guarded([&] {
    text_of(model, text).forget(name);
    return 0;
  });
}
EMSCRIPTEN_KEEPALIVE int page_freeze(int model, int text, const char* name, int on) {
  return guarded([&] {
    text_of(model, text).freeze(name, on != 0);
    return 0;
  });
}
EMSCRIPTEN_KEEPALIVE int page_swap(int model) {
  return guarded([&] {
    text_of(model, 0).swap_state(text_of(model, 1));
    return 0;
  });
}

}  // extern "C"
