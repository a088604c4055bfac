// hint: For x > 0, log(1 + exp(x)) = x + log(1 + exp(-x)), in which no exponential is large.
// hint: std::log1p(z) is log(1 + z), exact also where 1 + z would round to 1.
// hint: In the gradient take exp(-|x|), and tell the two signs of x apart.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  near("softplus(0)", softplus(0), std::log(2.0));
  near("softplus(1)", softplus(1), 1.3132616875182228);
  near("softplus(-1)", softplus(-1), 0.31326168751822286);
  near("softplus(1000)", softplus(1000), 1000, 1e-9, "exp(1000) is infinite");
  near("softplus(-1000)", softplus(-1000), 0);
  near("softplus(-40) / 4.248354255291589e-18", softplus(-40) / 4.248354255291589e-18, 1, 1e-9,
       "1 + exp(-40) is rounded to 1");
  near("softplus_gradient(0, 1)", softplus_gradient(0, 1), 0.5);
  for (const double x : {-3.0, -0.5, 0.7, 2.0})
    near("softplus_gradient(" + text_of(x) + ", 2)", softplus_gradient(x, 2), 2 / (1 + std::exp(-x)));
  near("softplus_gradient(1000, 3)", softplus_gradient(1000, 3), 3);
  near("softplus_gradient(-1000, 3)", softplus_gradient(-1000, 3), 0);
  near("softplus_gradient(-40, 1) / 4.248354255291589e-18", softplus_gradient(-40, 1) / 4.248354255291589e-18,
       1);
  return result();
}

}  // namespace eddy_learn
