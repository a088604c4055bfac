// needs: eddy
// hint: A loop over start = 0, window, 2 window, ...: take the block, push what its tokens read, then update the state.
// hint: attend(block, state) must use the state from before this block. So compute y first.
// hint: Return detach(state): without it, the tape of this batch would live on in the next one.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  constexpr std::size_t kDim = 2;
  const std::vector<double> tokens{1, 0, 0, 1, -1, 1, 2, 0, 0, -1, 1, 1}, state{1, 2, 0, -1};
  const Tensor tokens_in = Tensor::from(tokens, {1, 6, 2}), state_in = Tensor::from(state, {1, 2, 2});
  const std::string inputs = "read(tokens [1, 6, 2] " + text_of(tokens, kDim) + ", state [1, 2, 2] " +
                             text_of(state, kDim) + ", window ";
  for (const std::int64_t window : {6, 2, 3, 1}) {
    asks(inputs + text_of(window) + ")");
    const Read found = read(tokens_in, state_in, window);
    gives("shape of y", to_string(found.y.shape()));
    gives("shape of the state", to_string(found.state.shape()));
    gives("y", found.y.to_vector<double>(), kDim);
    gives("state", found.state.to_vector<double>(), kDim);
  }
  // Through the state, the last block's y depends on the first block's tokens. Through the state that is handed on,
  // nothing does.
  Tensor tracked = tokens_in + 0;
  require_grad(tracked);
  asks(inputs + "2), with gradients of the sum of the last block's y");
  const Read found = read(tracked, state_in, 2);
  const bool tracked_state = requires_grad(found.state);
  const std::int64_t time = found.y.dim(1);
  if (requires_grad(found.y)) backward(sum(narrow(found.y, 1, time - 2, 2)));
  gives("gradient of the tokens",
        grad(tracked).defined() ? grad(tracked).to_vector<double>() : std::vector<double>{}, kDim);
  gives("state handed on", tracked_state ? "part of the tape" : "detached");
}

}  // namespace eddy_learn
