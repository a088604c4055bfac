// hint: For each segment go forward and keep every h[t-1], then go back from the last step of the segment with dh = 0.
// hint: The first h[t-1] of a segment is the last h of the segment before. da takes it as a number, and dh stops there.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(double a, const Numbers& x, std::size_t segment) {
  asks("run(a " + text_of(a) + ", x " + text_of(x) + ", segment " + text_of(segment) + ")");
  const Result result = run(a, x, segment);
  gives("loss", result.loss);
  gives("da", result.da);
}

void check() {
  for (const std::size_t segment : {6, 100, 3, 4, 1}) check(2, {1, 0, -1, 2, -3, 1}, segment);
  for (const std::size_t segment : {3, 2}) check(-1, {1, 2, 3}, segment);
  check(2, {}, 4);
}

}  // namespace eddy_learn
