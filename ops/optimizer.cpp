// Checks of the optimizer kernels. The scalars and the segment table lie on the device of the arenas as
// bytes.
#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/records.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<AdamArgs> adam_slot{"adam"};
constinit Slot<NormArgs> l2_norm_slot{"l2_norm"};
constinit Slot<ScaleArgs> scale_slot{"scale"};

namespace {

void check_arena(const char* op, const Tensor& x, const char* name) {
  checks::floating(op, x, name);
  if (!x.contiguous())
    fail<ValueError>("{}: {} {} has strides (row-major arenas only)", op, name, to_string(x.shape()));
}

void check_options(const char* op, const AdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    if (!(beta >= 0 && beta < 1))
      fail<ValueError>("{}: betas {} and {} (each 0 <= beta < 1)", op, options.beta1, options.beta2);
  if (!(options.eps > 0 && std::isfinite(options.eps)))
    fail<ValueError>("{}: eps {} (above 0)", op, options.eps);
}

void check_segments(const char* op, const std::vector<DecaySegment>& segments, std::int64_t n) {
  std::int64_t last = 0;
  for (const DecaySegment& segment : segments) {
    if (segment.begin < last || segment.end < segment.begin || segment.end > n)
      fail<ValueError>(
          "{}: segment {} to {} after {} of an arena of {} (disjoint, in rising order, inside the arena)", op,
          segment.begin, segment.end, last, n);
    if (!(segment.decay >= 0 && std::isfinite(segment.decay)))
      fail<ValueError>("{}: decay {} of segment {} to {} (0 or more)", op, segment.decay, segment.begin,
                       segment.end);
    last = segment.end;
  }
}

// Everything but the table and the scalars.
void check_step(const char* op, const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                const AdamOptions& options, const Tensor& norm) {
  check_arena(op, params, "params");
  const struct {
    const Tensor& tensor;
    const char* name;
  } others[] = {{grads, "grads"}, {m, "m"}, {v, "v"}};
  for (const auto& [tensor, name] : others) {
    check_arena(op, tensor, name);
    checks::same_kind(op, params, tensor);
    if (tensor.shape() != params.shape())
      fail<ShapeError>("{}: params {} and {} {} (one shape for all)", op, to_string(params.shape()), name,
                       to_string(tensor.shape()));
  }
  check_options(op, options);
  if (norm.defined()) {
    if (norm.dtype() != Dtype::f64 || norm.elements() != 1)
      fail<ValueError>("{}: the norm is {} of {} (one f64, the result of l2_norm)", op,
                       to_string(norm.shape()), dtype_name(norm.dtype()));
    if (!(norm.device() == params.device()))
      fail<DeviceError>("{}: the norm is on {} and params on {} (one device for all)", op,
                        to_string(norm.device()), to_string(params.device()));
  }
}

void run_adam(const char* op, const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
              const Tensor& segments, const AdamOptions& options, const Tensor& scalars, const Tensor& norm) {
  wrote_in_place(params, op);
  if (params.elements() == 0) return;
  adam_slot(
      params.device(),
      {params.dtype(), params.elements(), params.raw_data(), grads.raw_data(), m.raw_data(), v.raw_data(),
       static_cast<const DecaySegment*>(segments.raw_data()), record_count<DecaySegment>(segments), options,
       static_cast<const AdamScalars*>(scalars.raw_data()), norm.defined() ? norm.data<double>() : nullptr});
}

// From numbers on the host.
void run_adam(const char* op, const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
              const std::vector<DecaySegment>& segments, const AdamOptions& options,
              const AdamScalars& scalars, const Tensor& norm) {
  check_step(op, params, grads, m, v, options, norm);
  check_scalars(op, scalars, 1);
  if (scalars.clip > 0 && !norm.defined())
    fail<ValueError>("{}: clip {} without the norm of the gradients (give the result of l2_norm)", op,
                     scalars.clip);
  check_segments(op, segments, params.elements());
  run_adam(op, params, grads, m, v, records_on(params.device(), segments), options,
           records_on(params.device(), &scalars, 1), norm);
}

}  // namespace

void check_scalars(const char* op, const AdamScalars& scalars, std::int64_t first_step) {
  if (!(scalars.lr >= 0 && std::isfinite(scalars.lr)))
    fail<ValueError>("{}: lr {} (0 or more)", op, scalars.lr);
  if (scalars.step < first_step)
    fail<ValueError>("{}: step {} (steps are counted from {})", op, scalars.step, first_step);
  if (!(scalars.clip >= 0)) fail<ValueError>("{}: clip {} (0 or more; 0 is no clipping)", op, scalars.clip);
}

Tensor decay_table(const std::vector<DecaySegment>& segments, std::int64_t elements, Device device) {
  check_segments("decay_table", segments, elements);
  return records_on(device, segments);
}

Tensor l2_norm(const Tensor& x) {
  check_arena("l2_norm", x, "input");
  if (x.elements() == 0) return Tensor::zeros({}, Dtype::f64, x.device());
  const Tensor norm = Tensor::empty({}, Dtype::f64, x.device());
  const Tensor partial =
      Tensor::empty({(x.elements() + kNormBlock - 1) / kNormBlock}, Dtype::f64, x.device());
  l2_norm_slot(x.device(),
               {x.dtype(), x.elements(), x.raw_data(), partial.data<double>(), norm.data<double>()});
  return norm;
}

void scale_in_place(const Tensor& x, double factor) {
  check_arena("scale_in_place", x, "input");
  if (!std::isfinite(factor)) fail<ValueError>("scale_in_place: factor {} (finite)", factor);
  wrote_in_place(x, "scale_in_place");
  if (x.elements() > 0) scale_slot(x.device(), {x.dtype(), x.elements(), x.raw_data(), factor});
}

void adamw_step(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                const std::vector<DecaySegment>& segments, const AdamOptions& options,
                const AdamScalars& scalars, const Tensor& norm) {
  run_adam("adamw_step", params, grads, m, v, segments, options, scalars, norm);
}

void adamw_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                          const Tensor& segments, const AdamOptions& options, const Tensor& scalars,
                          const Tensor& norm) {
  constexpr const char* kName = "adamw_step";
  check_step(kName, params, grads, m, v, options, norm);
  if (segments.dtype() != Dtype::u8 || !segments.contiguous() ||
      segments.elements() % static_cast<std::int64_t>(sizeof(DecaySegment)) != 0)
    fail<ShapeError>("{}: segments are {} of {} (the result of decay_table)", kName,
                     to_string(segments.shape()), dtype_name(segments.dtype()));
  if (scalars.dtype() != Dtype::u8 || scalars.elements() != static_cast<std::int64_t>(sizeof(AdamScalars)))
    fail<ShapeError>("{}: scalars are {} of {} (the bytes of one AdamScalars)", kName,
                     to_string(scalars.shape()), dtype_name(scalars.dtype()));
  if (!(segments.device() == params.device()) || !(scalars.device() == params.device()))
    fail<DeviceError>("{}: segments on {}, scalars on {} and params on {} (one device for all)", kName,
                      to_string(segments.device()), to_string(scalars.device()), to_string(params.device()));
  run_adam(kName, params, grads, m, v, segments, options, scalars, norm);
}

void adam_step(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
               const AdamOptions& options, const AdamScalars& scalars, const Tensor& norm) {
  run_adam("adam_step", params, grads, m, v, {}, options, scalars, norm);
}

// ---- samples
// ---------------------------------------------------------------------------------------------------------

namespace {

constexpr AdamOptions kOptions = {0.9, 0.98, 1e-6};
constexpr AdamScalars kScalars = {0.01, 3, 1.5};

// A gap at either end and one inside, and a border inside a chunk.
std::vector<DecaySegment> sample_segments(std::int64_t n) {
  return {{n / 7, n / 3, 0.1}, {n / 2, n - n / 5, 0.3}};
}

Tensors adam_reference(const Tensors& x) {
  std::vector<double> p = x[0].to_vector<double>(), m = x[2].to_vector<double>(),
                      v = x[3].to_vector<double>();
  const std::vector<double> g = x[1].to_vector<double>();
  double squares = 0;
  for (const double gradient : g) squares += gradient * gradient;
  const double factor = std::min(1.0, kScalars.clip / (std::sqrt(squares) + 1e-6));
  const double t = static_cast<double>(kScalars.step);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gradient = factor * g[i];
    m[i] = kOptions.beta1 * m[i] + (1 - kOptions.beta1) * gradient;
    v[i] = kOptions.beta2 * v[i] + (1 - kOptions.beta2) * gradient * gradient;
    for (const DecaySegment& segment : sample_segments(x[0].elements()))
      if (segment.begin <= static_cast<std::int64_t>(i) && static_cast<std::int64_t>(i) < segment.end)
        p[i] -= kScalars.lr * segment.decay * p[i];
    const double corrected_m = m[i] / (1 - std::pow(kOptions.beta1, t));
    const double corrected_v = v[i] / (1 - std::pow(kOptions.beta2, t));
    p[i] -= kScalars.lr * corrected_m / (std::sqrt(corrected_v) + kOptions.eps);
  }
  return {Tensor::from(p, x[0].shape()), Tensor::from(m, x[0].shape()), Tensor::from(v, x[0].shape())};
}

OpSpec adamw_spec() {
  OpSpec spec;
  spec.name = "adamw";
  spec.formula = "p (1 - lr decay) - lr m^ / (sqrt(v^) + eps)";
  spec.run = [](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), v = raw::copy(x[3]), g = raw::contiguous(x[1]);
    adamw_step(p, g, m, v, sample_segments(p.elements()), kOptions, kScalars, l2_norm(g));
    return Tensors{p, m, v};
  };
  spec.reference = adam_reference;
  const auto sample = [](std::int64_t n, double scale) {
    return Tensors{sample_normal({n}, "p"), sample_normal({n}, "g", scale), sample_normal({n}, "m", scale),
                   sample_uniform({n}, "v", 0, 2 * scale * scale)};
  };
  spec.samples = {{"size_0", sample(0, 1), false},      {"size_1", sample(1, 0.1), false},
                  {"odd_tail", sample(67, 0.1), false}, {"many_chunks", sample(40001, 0.003), false},
                  {"clipped", sample(67, 10), false},   {"large", sample(33, 1e6), false}};
  spec.roundings = 16;
  spec.bench = [sample] {
    Tensors inputs;
    for (const Tensor& x : sample(1 << 22, 1)) inputs.push_back(raw::cast(x, Dtype::f32));
    return inputs;
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{16 * static_cast<double>(x[0].elements()), 7 * static_cast<double>(x[0].bytes())};
  };
  return spec;
}

OpSpec norm_spec() {
  OpSpec spec;
  spec.name = "l2_norm";
  spec.formula = "sqrt(sum of x^2)";
  spec.run = [](const Tensors& x) { return Tensors{l2_norm(raw::contiguous(x[0]))}; };
  spec.reference = [](const Tensors& x) {
    long double sum = 0;
    for (const double value : x[0].to_vector<double>()) sum += static_cast<long double>(value) * value;
    return Tensors{Tensor::full({}, static_cast<double>(std::sqrt(sum)), Dtype::f64)};
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {{"size_0", {values({0})}, false},
                  {"size_1", {values({1})}, false},
                  {"odd_tail", {values({3, 37})}, false},
                  {"strided", {strided_copy(values({5, 7}))}, false},
                  {"many_blocks", {values({3 * kNormBlock + 5})}, false},
                  {"large", {sample_normal({33}, "x", 1e6)}, false}};
  spec.roundings =
      64;  // each of 16 lanes adds up to 1024 squares of one sign; roundings of random sign grow by a root
  spec.bench = [values] { return Tensors{raw::cast(values({1 << 22}), Dtype::f32)}; };
  spec.cost = [](const Tensors& x) {
    return OpCost{2 * static_cast<double>(x[0].elements()), static_cast<double>(x[0].bytes())};
  };
  return spec;
}

OpSpec scale_spec() {
  OpSpec spec;
  spec.name = "scale_in_place";
  spec.formula = "factor x";
  spec.run = [](const Tensors& x) {
    const Tensor y = raw::copy(x[0]);
    scale_in_place(y, 0.3);
    return Tensors{y};
  };
  spec.reference = [](const Tensors& x) {
    std::vector<double> values = x[0].to_vector<double>();
    for (double& value : values) value *= 0.3;
    return Tensors{Tensor::from(values, x[0].shape())};
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {
      {"size_0", {values({0})}, false},          {"size_1", {values({1})}, false},
      {"odd_tail", {values({3, 37})}, false},    {"strided", {strided_copy(values({5, 7}))}, false},
      {"many_chunks", {values({40001})}, false}, {"large", {sample_normal({33}, "x", 1e6)}, false}};
  spec.roundings = 2;
  spec.bench = [values] { return Tensors{raw::cast(values({1 << 22}), Dtype::f32)}; };
  spec.cost = [](const Tensors& x) {
    return OpCost{static_cast<double>(x[0].elements()), 2 * static_cast<double>(x[0].bytes())};
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> optimizer_specs() {
  return {adamw_spec(), norm_spec(), scale_spec()};
}

}  // namespace eddy
