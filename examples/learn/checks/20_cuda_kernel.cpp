// needs: tree
// hint: The tree: for (unsigned half = 128; half > 0; half /= 2) { __syncthreads(); if (threadIdx.x < half)
//       shared[threadIdx.x] += shared[threadIdx.x + half]; }
// hint: One barrier after the tree, so that everyone sees shared[0]; and one after everyone has read it, since the next
//       call writes to it.
// hint: A thread without columns has own = -INFINITY for the largest, and 0 for the sum.
// hint: Barriers stand outside of every `if`: all threads of the block must reach each of them.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

struct Numbers {
  const float* in;
  float *sum, *largest;
};
void reduce_kernel(Numbers args) {
  const float sum = sum_of_block(args.in[threadIdx.x]);
  const float largest = largest_of_block(args.in[threadIdx.x]);
  args.sum[threadIdx.x] = sum + 0 * sum_of_block(1);  // the sums of two calls in a row
  args.largest[threadIdx.x] = largest;
}

std::vector<float> floats(std::size_t count, std::uint64_t seed, double factor = 1) {
  std::vector<float> result;
  for (const double x : numbers(count, seed)) result.push_back(static_cast<float>(factor * x));
  return result;
}

void check_rows(std::int64_t rows, std::int64_t width, double factor) {
  const std::vector<float> x = floats(static_cast<std::size_t>(rows * width), 3, factor);
  std::vector<float> y(x.size(), NAN);
  emulation::run({"softmax", rows, kThreads, 0}, [&] { softmax_kernel({x.data(), y.data(), width}); });
  std::vector<double> got(y.begin(), y.end()), want;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * width;
    const double largest = *std::max_element(row, row + width);
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += std::exp(row[i] - largest);
    for (std::int64_t i = 0; i < width; ++i) want.push_back(std::exp(row[i] - largest) / sum);
  }
  near("softmax of [" + text_of(rows) + ", " + text_of(width) + "], numbers up to " + text_of(factor), got,
       want, static_cast<std::size_t>(width), 1e-5);
}

int check() {
  const std::vector<float> in = floats(kThreads, 1);
  std::vector<float> sums(kThreads), most(kThreads);
  emulation::run({"reduce", 1, kThreads, 0}, [&] { reduce_kernel({in.data(), sums.data(), most.data()}); });
  double sum = 0, largest = in[0];
  for (const float x : in) {
    sum += x;
    largest = std::max<double>(largest, x);
  }
  for (const std::size_t t : {0, 1, 255}) {
    near("sum_of_block, thread " + text_of(t), sums[t], sum, 1e-4);
    near("largest_of_block, thread " + text_of(t), most[t], largest, 0);
  }
  check_rows(1, 1, 1);
  check_rows(3, 7, 1);
  check_rows(2, 256, 1);
  check_rows(4, 1000, 1);
  check_rows(1, 300, 500);
  return result();
}

}  // namespace eddy_learn
