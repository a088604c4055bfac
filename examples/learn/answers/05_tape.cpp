// The answer to exercise 5.
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

std::size_t leaf(Tape& tape, double value) {
  tape.push_back({value, {}});
  return tape.size() - 1;
}
std::size_t add(Tape& tape, std::size_t a, std::size_t b) {
  tape.push_back({tape[a].value + tape[b].value, {{a, 1}, {b, 1}}});
  return tape.size() - 1;
}
std::size_t multiply(Tape& tape, std::size_t a, std::size_t b) {
  tape.push_back({tape[a].value * tape[b].value, {{a, tape[b].value}, {b, tape[a].value}}});
  return tape.size() - 1;
}
std::size_t exponential(Tape& tape, std::size_t a) {
  const double value = std::exp(tape[a].value);
  tape.push_back({value, {{a, value}}});
  return tape.size() - 1;
}

void backward(Tape& tape, std::size_t loss) {
  for (Node& node : tape) node.gradient = 0;
  tape[loss].gradient = 1;
  for (std::size_t i = loss + 1; i-- > 0;)
    for (const Input& input : tape[i].inputs) tape[input.node].gradient += tape[i].gradient * input.slope;
}
