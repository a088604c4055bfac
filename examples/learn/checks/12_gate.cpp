// hint: c' moves with f by c - z, and f moves with b by f (1 - f).
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  const auto forward = [](const Numbers& c, const Numbers& z, const Numbers& b) {
    asks("gate(c " + text_of(c) + ", z " + text_of(z) + ", b " + text_of(b) + ")");
    gives("gate", gate(c, z, b));
  };
  forward({4}, {0}, {0});
  forward({4}, {8}, {0});
  forward({1, 2, -3}, {0, 4, 1}, {1, -1, 2});
  const auto back = [](const Numbers& c, const Numbers& z, const Numbers& b, const Numbers& dnext) {
    asks("gate_gradients(c " + text_of(c) + ", z " + text_of(z) + ", b " + text_of(b) + ", dnext " +
         text_of(dnext) + ")");
    const GateGradients g = gate_gradients(c, z, b, dnext);
    gives("dc", g.dc);
    gives("dz", g.dz);
    gives("db", g.db);
  };
  back({4}, {2}, {0}, {1});
  back({4, 1}, {2, 3}, {0, 0}, {2, -4});
  back({1, 2, -3}, {0, 4, 1}, {1, -1, 2}, {1, 3, -2});

  Numbers state{1}, gradient{1};
  asks("100 times state = gate(state, z 0, b 5) from state 1, and as often back from a gradient of 1");
  for (int step = 0; step < 100; ++step) {
    state = gate(state, {0}, {5});
    gradient = gate_gradients({3}, {0}, {5}, gradient).dc;
  }
  gives("gate", state);
  gives("dc", gradient);
}

}  // namespace eddy_learn
