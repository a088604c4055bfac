// hint: c' moves with f by c - z, and f moves with b by f (1 - f).
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  near("gate(c 4, z 0, b 0)", gate({4}, {0}, {0}), {2});
  near("gate(c 4, z 8, b ln 3)", gate({4}, {8}, {std::log(3.0)}), {5}, 0, 1e-9, "f is 3/4");
  const Numbers c = numbers(6, 1), z = numbers(6, 2), b = numbers(6, 3), dnext = numbers(6, 4);
  const GateGradients g = gate_gradients(c, z, b, dnext);
  const auto loss = [&](const Numbers& of_c, const Numbers& of_z, const Numbers& of_b) {
    double sum = 0;
    for (std::size_t i = 0; i < 6; ++i) {
      const double f = 1 / (1 + std::exp(-of_b[i]));
      sum += dnext[i] * (of_c[i] * f + of_z[i] * (1 - f));
    }
    return sum;
  };
  near("dc", g.dc, slopes([&](const Numbers& v) { return loss(v, z, b); }, c), 0, 1e-7);
  near("dz", g.dz, slopes([&](const Numbers& v) { return loss(c, v, b); }, z), 0, 1e-7);
  near("db", g.db, slopes([&](const Numbers& v) { return loss(c, z, v); }, b), 0, 1e-7);

  Numbers state{1}, back{1};
  for (int step = 0; step < 100; ++step) {
    state = gate(state, {0}, {5});
    back = gate_gradients({0.3}, {0}, {5}, back).dc;
  }
  const double kept = std::pow(1 / (1 + std::exp(-5.0)), 100);
  near("what is left of a state of 1 after 100 steps at b 5", state, {kept});
  near("what is left of a gradient of 1 after 100 steps back at b 5", back, {kept});
  return result();
}

}  // namespace eddy_learn
