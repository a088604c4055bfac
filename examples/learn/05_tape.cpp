// Exercise 5: gradients back along a tape
//
// Every operation appends a node with its value, the nodes it was made from, and the slope of its value with respect to
// each of them. To get gradients, go back over the tape:
//
//   gradients = 0, that of the loss = 1
//   for every node from the last to the first, for each of its inputs:  dinput += dnode slope
//
// It is +=, since a number that was used twice gets gradients from both uses. In Eddy: autograd/tape.cpp, where the
// numbers are tensors and the slope is a function (a vector-Jacobian product).
#include <cmath>
#include <cstddef>
#include <vector>

struct Input {
  std::size_t node;
  double slope;
};
struct Node {
  double value;
  std::vector<Input> inputs;
  double gradient = 0;
};
using Tape = std::vector<Node>;

// Each appends a node and returns its number.
std::size_t leaf(Tape& tape, double value) {
  tape.push_back({value, {}});
  return tape.size() - 1;
}
std::size_t add(Tape& tape, std::size_t a, std::size_t b) {
  tape.push_back({tape[a].value + tape[b].value, {{a, 1}, {b, 1}}});
  return tape.size() - 1;
}
std::size_t multiply(Tape& tape, std::size_t a, std::size_t b) {
  return leaf(tape, tape[a].value * tape[b].value);  // your code: the inputs are missing
}
std::size_t exponential(Tape& tape, std::size_t a) {
  return leaf(tape, std::exp(tape[a].value));  // your code: the inputs are missing
}

// Sets the gradient of every node: how fast the value of `loss` grows with its value.
void backward(Tape& tape, std::size_t loss) {
  // your code
}
