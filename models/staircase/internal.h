// Functions that only the .cpp files of this folder share.
#pragma once

#include "models/staircase/family.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/views/views.h"

namespace eddy {

// The next state's `done`: that of `state` followed by the outputs, the last `rows` of both.
inline Tensor done_after(const State& state, const Tensor& outputs, std::int64_t rows) {
  const Tensor* before = state.find("done");
  return last_rows(before != nullptr ? *before : Tensor(), outputs, rows);
}

// a followed by b on the axis of tokens; either may be undefined.
inline Tensor joined(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? concat({a, b}, 1) : a;
}

// The LSTM cell in its literal form, from one-line functions (literal.cpp).
// shapes: gates [batch, 4 dim], c [batch, dim].
LstmCell literal_cell(const Tensor& gates, const Tensor& c);

}  // namespace eddy
