// hint: For each segment go forward and keep every h[t-1], then go back from the last step of the segment with dh = 0.
// hint: The first h[t-1] of a segment is the last h of the segment before. da takes it as a number, and dh stops there.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  const double a = 0.9;
  const Numbers x = numbers(12, 1);
  const auto loss_of = [&](const Numbers& factor) {
    double h = 0, loss = 0;
    for (const double input : x) {
      h = factor[0] * h + input;
      loss += h * h / 2;
    }
    return loss;
  };
  for (const std::size_t segment : {12, 100, 6, 5, 1})
    near("the loss of 12 steps in segments of " + text_of(segment), run(a, x, segment).loss, loss_of({a}),
         1e-9, "values cross the cuts");
  near("da in one segment of 12", run(a, x, 12).da, slope(loss_of, {a}, 0), 1e-7, "the whole gradient");
  near("da in one segment of 100", run(a, x, 100).da, slope(loss_of, {a}, 0), 1e-7);

  // By the definition: dh[t] is the sum over later steps s of the same segment of a^(s-t) h[s].
  Numbers h{0};
  for (const double input : x) h.push_back(a * h.back() + input);  // h[t + 1] is that of step t
  for (const std::size_t segment : {6, 5, 1}) {
    double want = 0;
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t s = t; s < x.size() && s / segment == t / segment; ++s)
        want += std::pow(a, s - t) * h[s + 1] * h[t];
    near("da in segments of " + text_of(segment), run(a, x, segment).da, want, 1e-9,
         "gradients stop at the cuts");
  }
  near("da of a stream of no steps", run(a, {}, 4).da, 0);
  return result();
}

}  // namespace eddy_learn
