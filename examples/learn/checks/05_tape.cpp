// hint: The slope of a b with respect to a is b, and that of exp(a) is exp(a).
// hint: A node's gradient is complete only when all nodes that used it have run. They stand behind it on the tape.
// hint: Set all gradients to 0 first: backward may be called twice.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// The inputs of the last node: which, and the slope of each.
void gives_inputs(const std::string& part, const Tape& tape) {
  std::vector<double> slopes;
  for (const Input& input : tape.back().inputs) {
    slopes.push_back(static_cast<double>(input.node));
    slopes.push_back(input.slope);
  }
  gives(part, slopes, 2);
}

// The gradients of all nodes of a tape that no operation of the student's has written.
void gives_gradients(const Tape& tape) {
  std::vector<double> gradients;
  for (const Node& node : tape) gradients.push_back(node.gradient);
  gives("backward", gradients);
}

void check() {
  for (const double b : {5, -2}) {
    Tape tape{{3, {}}, {b, {}}};
    asks("multiply(tape, 0, 1), where node 0 is 3 and node 1 is " + text_of(b));
    const std::size_t y = multiply(tape, 0, 1);
    gives("multiply: value", tape[y].value);
    gives_inputs("multiply: inputs [node, slope]", tape);
  }
  for (const double a : {0, 2}) {
    Tape tape{{a, {}}};
    asks("exponential(tape, 0), where node 0 is " + text_of(a));
    const std::size_t y = exponential(tape, 0);
    gives("exponential: value", tape[y].value);
    gives_inputs("exponential: inputs [node, slope]", tape);
  }
  // x, then y = 3 x, z = 2 x + 5 y: x is used twice.
  const Tape twice{{1, {}}, {3, {{0, 3}}}, {17, {{0, 2}, {1, 5}}}};
  {
    Tape tape = twice;
    asks("backward(tape, 2), where node 0 is x, node 1 is 3 x and node 2 is 2 x + 5 (node 1)");
    backward(tape, 2);
    gives_gradients(tape);
    asks("the same tape again: backward(tape, 2)");
    backward(tape, 2);
    gives_gradients(tape);
    asks("and then backward(tape, 1)");
    backward(tape, 1);
    gives_gradients(tape);
  }
  {
    Tape tape{{2, {}}, {4, {{0, 2}, {0, 2}}}};
    asks("backward(tape, 1), where node 0 is 2 and node 1 is its square: node 0 is an input twice");
    backward(tape, 1);
    gives_gradients(tape);
  }
  {
    Tape tape{{0, {}}};
    for (std::size_t i = 0; i < 300'000; ++i) tape.push_back({0, {{i, 1}, {0, 1}}});
    asks("backward(tape, 300000), where each node is the one before it plus node 0");
    backward(tape, 300'000);
    gives("backward", tape[0].gradient);
  }
}

}  // namespace eddy_learn
