// Exercise 13: gradients through a stream in segments
//
// A recurrence over a long stream, and its loss:
//
//   h[t] = a h[t-1] + x[t]                    h before the first step is 0
//   loss = sum over t of h[t]^2 / 2
//
// Its gradient goes back through all steps: dh[t] = h[t] + a dh[t+1], and da = sum over t of dh[t] h[t-1]. Nobody can
// keep the tape of a stream without end. So the stream is cut into segments: the value of h goes on from one segment to
// the next, and the gradient does not (h is detached). The loss stays the same, da loses what crosses a cut. In Eddy
// the state is detached between batches, and the key train.sequence is the length of a segment.
#include <algorithm>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;

struct Result {
  double loss = 0, da = 0;
};

// The loss of the whole stream, and da by segments of `segment` steps (the last one may be shorter).
Result run(double a, const Numbers& x, std::size_t segment) {
  Result result;
  // your code
  return result;
}
