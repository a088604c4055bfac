// needs: eddy
// hint: A loop over start = 0, window, 2 window, ...: take the block, push what its tokens read, then update the state.
// hint: attend(block, state) must use the state from before this block. So compute y first.
// hint: Return detach(state): without it, the tape of this batch would live on in the next one.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

using Cube = std::vector<double>;  // [rows, dim] of one batch

Cube attended(const Cube& q, const Cube& x, std::size_t dim) {
  Cube result(q.size());
  for (std::size_t r = 0; r < q.size(); r += dim) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t s = 0; s < x.size(); s += dim) {
      double score = 0;
      for (std::size_t i = 0; i < dim; ++i)
        score += q[r + i] * x[s + i] / std::sqrt(static_cast<double>(dim));
      weights.push_back(std::exp(score));
      sum += weights.back();
    }
    for (std::size_t s = 0; s < x.size(); s += dim)
      for (std::size_t i = 0; i < dim; ++i) result[r + i] += weights[s / dim] / sum * x[s + i];
  }
  return result;
}

int check() {
  constexpr std::size_t kTime = 6, kStates = 2, kDim = 3;
  const Cube tokens = numbers(kTime * kDim, 1), state = numbers(kStates * kDim, 2);
  const Tensor tokens_in = Tensor::from(tokens, {1, kTime, kDim}),
               state_in = Tensor::from(state, {1, kStates, kDim});
  for (const std::size_t window : {6, 2, 3, 1}) {
    Cube want_y, c = state;
    for (std::size_t start = 0; start < kTime; start += window) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(start * kDim);
      const Cube block(begin, begin + static_cast<std::ptrdiff_t>(window * kDim));
      const Cube up = attended(block, c, kDim), along = attended(c, block, kDim);
      for (std::size_t i = 0; i < block.size(); ++i) want_y.push_back(block[i] + up[i]);
      for (std::size_t i = 0; i < c.size(); ++i) c[i] = c[i] * 0.9 + along[i] * 0.1;
    }
    const std::string when = " at window " + text_of(window);
    const Read found = read(tokens_in, state_in, static_cast<std::int64_t>(window));
    same("the shape of y" + when, to_string(found.y.shape()), std::string("[1, 6, 3]"));
    same("the shape of the state" + when, to_string(found.state.shape()), std::string("[1, 2, 3]"));
    near("y" + when, found.y.to_vector<double>(), want_y, kDim);
    near("the state" + when, found.state.to_vector<double>(), c, kDim, 1e-9, "after the last block");
  }

  // Through the state, the last block's y depends on the first block's tokens. Through the state that is handed on,
  // nothing does.
  Tensor tracked = tokens_in + 0;
  require_grad(tracked);
  const Read found = read(tracked, state_in, 2);
  backward(sum(narrow(found.y, 1, 4, 2)));
  const double reach = grad(tracked).defined() ? std::abs(grad(tracked).to_vector<double>()[0]) : 0;
  holds(reach > 0, "the gradient of the last block's y with respect to the first token", text_of(reach),
        "not 0");
  const bool tracked_state = requires_grad(found.state);
  holds(!tracked_state, "the state that is handed on", "part of the tape", "detached");
  return result();
}

}  // namespace eddy_learn
