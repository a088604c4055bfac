// hint: Make m and v as long as p at the first step: m.resize(p.size()) adds zeros, and changes nothing later.
// hint: After the first step m^ is g and v^ is g^2: every number moves by `rate` against the sign of its gradient.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// Numbers after each of some steps with the same settings.
void check(AdamW adam, Numbers p, const std::vector<Numbers>& gradients) {
  std::string asked = "rate " + text_of(adam.rate) + ", eps " + text_of(adam.eps) + ", decay " +
                      text_of(adam.decay) + ", p " + text_of(p);
  for (const Numbers& g : gradients) {
    asked += ", then step with g " + text_of(g);
    asks(asked);
    adam.step(p, g);
    gives("p", p);
    gives("steps", adam.steps);
  }
}

void check() {
  AdamW plain, decaying, coarse;
  decaying.decay = 0.5;
  coarse.eps = 1;
  coarse.rate = 1;
  check(plain, {1, 1, 1}, {{4, -2, 0}, {1, 1, 1}, {-3, 2, 0}});
  check(decaying, {2, -2}, {{0, 0}, {1, 3}, {2, -1}});
  check(coarse, {3}, {{1}, {-3}, {2}});
}

}  // namespace eddy_learn
