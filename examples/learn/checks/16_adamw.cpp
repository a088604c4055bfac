// hint: Make m and v as long as p at the first step: m.resize(p.size()) adds zeros, and changes nothing later.
// hint: After the first step m^ is g and v^ is g^2: every number moves by `rate` against the sign of its gradient.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  {
    AdamW adam;
    Numbers p{1, 1, 1};
    adam.step(p, {5, -0.01, 0});
    near("p after the first step, gradients {5, -0.01, 0}, rate 0.1", p, {0.9, 1.1, 1}, 0, 1e-6,
         "whatever its size, a gradient moves its number by the rate");
  }
  {
    AdamW adam;
    adam.decay = 0.5;
    Numbers p{2, -2};
    adam.step(p, {0, 0});
    near("p after a step with no gradient, decay 0.5, rate 0.1", p, {1.9, -1.9});
  }
  {
    AdamW adam;
    adam.decay = 0.1;
    Numbers p{1};
    for (const double g : {1.0, -3.0, 0.5}) adam.step(p, {g});
    near("p after gradients 1, -3, 0.5 with decay 0.1", p, {0.94854027552805}, 0, 1e-9);
    same("the count of steps", adam.steps, 3);
  }
  {
    AdamW adam;
    Numbers p{4};
    for (int i = 0; i < 500; ++i) {
      adam.rate = 0.1 / (1 + 0.02 * i);
      adam.step(p, {2 * (p[0] - 3)});
    }
    near("where 500 steps towards the minimum of (p - 3)^2 end", p, {3}, 0, 0.01);
  }
  return result();
}

}  // namespace eddy_learn
