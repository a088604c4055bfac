// hint: For x > 0, log(1 + exp(x)) = x + log(1 + exp(-x)), in which no exponential is large.
// hint: std::log1p(z) is log(1 + z), exact also where 1 + z would round to 1.
// hint: In the gradient take exp(-|x|), and tell the two signs of x apart.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  for (const double x : {0, 1, -1, 2, -3, 1000, -1000}) {
    asks("softplus(" + text_of(x) + ")");
    gives("softplus", softplus(x));
  }
  asks("1e18 softplus(-40), since 1 + exp(-40) is rounded to 1");
  gives("softplus", 1e18 * softplus(-40));
  for (const double x : {0, -3, -1, 1, 2, 1000, -1000})
    for (const double dy : {1, 3}) {
      asks("softplus_gradient(" + text_of(x) + ", " + text_of(dy) + ")");
      gives("softplus_gradient", softplus_gradient(x, dy));
    }
  asks("1e18 softplus_gradient(-40, 1)");
  gives("softplus_gradient", 1e18 * softplus_gradient(-40, 1));
}

}  // namespace eddy_learn
