// Samples and references of the ops in rotary.h.
#include <cmath>
#include <vector>

#include "ops/attention/rotary.h"
#include "ops/core/op_spec.h"

namespace eddy {
namespace {

constexpr double kTheta = 10000;
constexpr std::int64_t kFirst = 3;

Tensor reference_rotary(const Tensor& input) {
  std::vector<double> x = input.to_vector<double>();
  const std::int64_t time = input.dim(1), heads = input.dim(2), size = input.dim(3);
  for (std::int64_t pair = 0; pair < input.elements() / 2; ++pair) {
    const std::int64_t i = pair % (size / 2), position = kFirst + pair / (size / 2) / heads % time;
    const double angle = static_cast<double>(position) /
                         std::pow(kTheta, 2 * static_cast<double>(i) / static_cast<double>(size));
    double& u = x[static_cast<std::size_t>(2 * pair)];
    double& w = x[static_cast<std::size_t>(2 * pair + 1)];
    const double turned = u * std::cos(angle) - w * std::sin(angle);
    w = u * std::sin(angle) + w * std::cos(angle);
    u = turned;
  }
  return Tensor::from(x, input.shape());
}

}  // namespace

std::vector<OpSpec> rotary_specs() {
  OpSpec spec{"rotary", "(u cos a - w sin a, u sin a + w cos a), a = position theta^(-2i / head_size)"};
  spec.run = [](const Tensors& x) { return rotary_bthd(x[0], kFirst, kTheta); };
  spec.reference = [](const Tensors& x) { return reference_rotary(x[0]); };
  const auto x = [](const Shape& shape, double scale = 1) { return sample_normal(shape, "x", scale); };
  spec.samples = {{"size_0", {x({2, 0, 3, 4})}},
                  {"no_entries", {x({2, 3, 1, 0})}},
                  {"size_1", {x({1, 1, 1, 2})}},
                  {"odd_tail", {x({2, 5, 3, 6})}},
                  {"one_vector_and_tail", {x({1, 3, 2, 50})}},
                  {"many_rows", {x({12, 20, 2, 48})}, false},
                  {"strided", {strided_copy(x({2, 3, 4, 6}))}},
                  {"heads_first", {raw::transpose(x({2, 3, 5, 6}), 1, 2)}},
                  {"part_of_a_product", {raw::narrow(x({2, 4, 9, 6}), 2, 3, 3)}},
                  {"large",
                   {
                       x({1, 4, 2, 10}, 1e4),
                   },
                   false}};
  spec.roundings = 64;  // an angle of up to 23 radians with 3 roundings
  spec.bench = [x] { return x({32, 256, 6, 48}); };
  return {spec};
}

}  // namespace eddy
