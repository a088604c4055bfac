// hint: Two passes: first the mean, then the squares of what differs from it.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  for (const std::vector<double>& x : {std::vector<double>{1, 2, 3}, {4, 4}, {-1, 0, 7, 2}, {5}, {}}) {
    asks("variance(" + text_of(x) + ")");
    gives("variance", variance(x));
  }
}

}  // namespace eddy_learn
