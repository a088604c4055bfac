// Samples and references of the ops in scan.h.
#include "ops/core/op_spec.h"
#include "ops/recurrence/scan.h"

namespace eddy {
namespace {

// The steps one after the other; a is 1 where it is empty, and h is 0 at first where `initial` is.
std::vector<double> reference_steps(const Shape& shape, int axis, const std::vector<double>& a,
                                    const std::vector<double>& b, const std::vector<double>& initial) {
  std::int64_t outer = 1, inner = 1;
  const std::int64_t time = shape[axis];
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  std::vector<double> h(b.size());
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      double state = initial.empty() ? 0 : initial[static_cast<std::size_t>(o * inner + i)];
      for (std::int64_t t = 0; t < time; ++t) {
        const auto at = static_cast<std::size_t>((o * time + t) * inner + i);
        state = (a.empty() ? 1 : a[at]) * state + b[at];
        h[at] = state;
      }
    }
  return h;
}

// Time is the axis before the last, or the only one.
int time_axis(const Tensor& x) {
  return x.rank() > 1 ? x.rank() - 2 : 0;
}

OpSpec scan_spec() {
  OpSpec spec{"scan", "h_t = a_t h_{t-1} + b_t"};
  spec.run = [](const Tensors& x) { return scan(x[0], x[1], time_axis(x[1]), optional_input(x, 2)); };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> initial = x.size() > 2 ? x[2].to_vector<double>() : std::vector<double>();
    return Tensor::from(reference_steps(x[1].shape(), time_axis(x[1]), x[0].to_vector<double>(),
                                        x[1].to_vector<double>(), initial),
                        x[1].shape());
  };
  // Factors as gates have them, some 0 and some negative.
  const auto a = [](const Shape& shape) { return sample_uniform(shape, "a", -0.5, 1); };
  const auto b = [](const Shape& shape, double scale = 1) { return sample_normal(shape, "b", scale); };
  const auto initial = [](const Shape& shape) { return sample_normal(shape, "initial"); };
  const Tensor gaps = raw::copy(a({2, 6, 3}));
  raw::fill(raw::select(gaps, 1, 3), 0);
  spec.samples = {
      {"size_0", {a({2, 0, 3}), b({2, 0, 3}), initial({2, 3})}},
      {"no_channels", {a({0, 5, 3}), b({0, 5, 3})}},
      {"size_1", {a({1}), b({1}), initial({})}},
      {"odd_tail", {a({3, 7, 37}), b({3, 7, 37}), initial({3, 37})}},
      {"no_initial", {a({2, 5, 9}), b({2, 5, 9})}},
      {"one_channel", {a({37}), b({37}), initial({})}},
      {"narrow", {a({5, 7, 3}), b({5, 7, 3}), initial({5, 3})}},
      {"forgets", {gaps, b({2, 6, 3})}},
      {"strided", {strided_copy(a({2, 5, 9})), strided_copy(b({2, 5, 9})), strided_copy(initial({2, 9}))}},
      {"blocks", {a({2, 1203, 11}), b({2, 1203, 11}), initial({2, 11})}, false},
      {"narrow_blocks", {a({1, 1537, 1}), b({1, 1537, 1}), initial({1, 1})}, false},
      {"wide", {a({2, 65, 600}), b({2, 65, 600})}, false},
      {"large", {a({2, 9, 5}), b({2, 9, 5}, 1e6), initial({2, 5})}}};
  spec.roundings = 32;
  spec.bench = [=] { return Tensors{a({8, 1024, 512}), b({8, 1024, 512})}; };
  return spec;
}

OpSpec cumsum_spec() {
  OpSpec spec{"cumsum", "y_t = x_1 + .. + x_t"};
  spec.run = [](const Tensors& x) { return cumsum(x[0], time_axis(x[0])); };
  spec.reference = [](const Tensors& x) {
    return Tensor::from(reference_steps(x[0].shape(), time_axis(x[0]), {}, x[0].to_vector<double>(), {}),
                        x[0].shape());
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "cumsum"); };
  spec.samples = {{"size_0", {values({2, 0, 3})}},
                  {"size_1", {values({1})}},
                  {"odd_tail", {values({3, 7, 37})}},
                  {"one_channel", {values({37})}},
                  {"strided", {strided_copy(values({2, 5, 9}))}},
                  {"blocks", {values({2, 1203, 11})}, false},
                  {"narrow_blocks", {values({1, 1537, 1})}, false},
                  {"large", {sample_normal({2, 9, 5}, "cumsum", 1e6)}}};
  spec.roundings = 256;  // up to 1536 terms one after the other; roundings of random sign grow by a root
  spec.bench = [=] { return values({8, 1024, 512}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> scan_specs() {
  return {scan_spec(), cumsum_spec()};
}

}  // namespace eddy
