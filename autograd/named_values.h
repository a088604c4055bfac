// Values inside a forward pass, by module path: attention probabilities, gates, states. A model or an op names a value
// on one line, and whoever wants to look at it captures it by a pattern:
//
//   name_value("gate", gate);                                          inside scope layers.0: "layers.0.gate"
//   NamedValues seen = capture_values({"layers.*.gate", "*.probabilities"}, [&] { model->forward(input); });
//   seen.at("layers.0.gate")[0]                                        of the scope's first call
//
// Where nothing is captured, a name costs the test of one pointer.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/tensor.h"

namespace eddy {

// The values of each path, in the order in which they were named: a layer that runs block by block names one per block.
using NamedValues = std::map<std::string, std::vector<Tensor>>;

namespace detail {

class ValueCapture;
inline constinit thread_local ValueCapture* value_capture = nullptr;

// Notes that the current scope has a value called `name`, and takes it if somebody wants it.
void offer_value(std::string_view name, const std::function<Tensor()>& make);

}  // namespace detail

// Whether this thread captures values. Where a fused kernel would hide them, a model then takes the same form in parts.
inline bool captures_values() {
  return detail::value_capture != nullptr;
}

// Names a value of the current scope (autograd/scope.h). `value` is a tensor, or a function that makes one, which runs
// only where somebody captures it, without a graph.
template <class Value>
void name_value(std::string_view name, Value&& value) {
  if (!captures_values()) return;
  if constexpr (std::is_invocable_v<Value>)
    detail::offer_value(name, value);
  else
    detail::offer_value(name, [&] { return value; });
}

// A pattern that fits no value of a run. The text lists those that there are.
class CaptureError : public ValueError {
 public:
  using ValueError::ValueError;
};

// Runs `run` and returns copies, without a graph, of the values that it names on this thread and whose path fits one of
// the patterns; * stands for any text, dots too. What a backward pass recomputes is not captured again.
// errors: CaptureError; those of `run`.
NamedValues capture_values(const std::vector<std::string>& patterns, const std::function<void()>& run);

// The same of the values whose path `wants` says yes to; none where it does not, or where nothing is named.
// errors: those of `wants` and `run`.
NamedValues capture_values_if(const std::function<bool(const std::string& path)>& wants,
                              const std::function<void()>& run);

}  // namespace eddy
