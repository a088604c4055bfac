// Checks of the optimizer kernels. The scalars and the segment table are bytes on the device of the arenas.
#include "ops/optimizer/optimizer.h"

#include <cmath>
#include <string_view>

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/core/parameter_cache.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

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

constexpr const char* kAdamw = "adamw_step";

// Everything but the table and the scalars.
void check_step(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                const AdamConstants& options, const Tensor& norm) {
  check_arenas(kAdamw, params, {{grads, "grads"}, {m, "m"}, {v, "v"}}, norm);
  for (const double beta : {options.beta1, options.beta2})
    if (!(beta >= 0 && beta < 1))
      fail<ValueError>("{}: betas {} and {} (each 0 <= beta < 1)", kAdamw, options.beta1, options.beta2);
  if (!(options.eps > 0 && std::isfinite(options.eps)))
    fail<ValueError>("{}: eps {} (above 0)", kAdamw, options.eps);
}

void run_adam(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
              const Tensor& segments, const AdamConstants& options, const Tensor& scalars,
              const Tensor& norm) {
  void* const rounded = write_params(params, kAdamw);
  if (params.elements() == 0) return;
  adam_slot(
      params.device(),
      {params.dtype(), params.elements(), params.raw_data(), grads.raw_data(), m.raw_data(), v.raw_data(),
       static_cast<const DecaySegment*>(segments.raw_data()), record_count<DecaySegment>(segments), options,
       static_cast<const AdamScalars*>(scalars.raw_data()), norm.defined() ? norm.data<double>() : nullptr,
       rounded});
}

}  // namespace

void detail::check_arenas(const char* op, const Tensor& params, std::initializer_list<NamedArena> others,
                          const Tensor& norm) {
  checks::arena(op, params, "params");
  for (const auto& [tensor, name] : others) {
    checks::arena(op, tensor, name);
    checks::same_kind(op, params, tensor);
    if (std::string_view(name) != "second" && tensor.shape() != params.shape())
      fail<ShapeError>("{}: params {} and {} {} (one shape for all)", op, to_string(params.shape()), name,
                       to_string(tensor.shape()));
  }
  if (!norm.defined()) return;
  if (norm.dtype() != Dtype::f64 || norm.elements() != 1)
    fail<ValueError>("{}: the norm is {} of {} (one f64, the result of l2_norm)", op, to_string(norm.shape()),
                     dtype_name(norm.dtype()));
  if (norm.device() != params.device())
    fail<DeviceError>("{}: the norm is on {} and params on {} (one device for all)", op,
                      to_string(norm.device()), to_string(params.device()));
}

void detail::check_scalars(const char* op, const AdamScalars& scalars, std::int64_t first_step) {
  if (!(scalars.lr >= 0 && std::isfinite(scalars.lr)))
    fail<ValueError>("{}: lr {} (0 or more)", op, scalars.lr);
  if (scalars.step < first_step)
    fail<ValueError>("{}: step {} (steps are counted from {})", op, scalars.step, first_step);
  if (!(scalars.clip >= 0)) fail<ValueError>("{}: clip {} (0 or more; 0 is no clipping)", op, scalars.clip);
}

void detail::check_clip(const char* op, const AdamScalars& scalars, const Tensor& norm) {
  if (scalars.clip > 0 && !norm.defined())
    fail<ValueError>("{}: clip {} without the norm of the gradients (give the result of l2_norm)", op,
                     scalars.clip);
}

void detail::check_scalars(const char* op, const Tensor& scalars) {
  if (scalars.dtype() != Dtype::u8 || scalars.elements() != static_cast<std::int64_t>(sizeof(AdamScalars)))
    fail<ShapeError>("{}: scalars are {} of {} (the bytes of one AdamScalars)", op,
                     to_string(scalars.shape()), dtype_name(scalars.dtype()));
}

void detail::check_decay_table(const char* op, const Tensor& segments) {
  if (segments.dtype() != Dtype::u8 || !segments.contiguous() ||
      segments.elements() % static_cast<std::int64_t>(sizeof(DecaySegment)) != 0)
    fail<ShapeError>("{}: segments are {} of {} (the result of decay_table)", op, to_string(segments.shape()),
                     dtype_name(segments.dtype()));
}

void* detail::write_params(const Tensor& params, const char* op) {
  const ParameterCache* const cache = ParameterCache::of(params);
  Buffer* const copy =
      !uses_cpu_path(params.device()) && cache != nullptr ? cache->current_bf16_copy(params) : nullptr;
  wrote_in_place(params, op);
  if (copy == nullptr) return nullptr;
  params.buffer()->mark_derived_current();
  copy->bump_version(op);
  return static_cast<bf16*>(copy->data()) + params.offset();
}

Tensor detail::decay_table(const std::vector<DecaySegment>& segments, std::int64_t elements, Device device) {
  check_segments("decay_table", segments, elements);
  return upload_records(device, segments);
}

Tensor l2_norm(const Tensor& x, const Tensor& before) {
  checks::arena("l2_norm", x);
  if (x.elements() == 0) return Tensor::zeros({}, Dtype::f64, x.device());
  const Tensor norm = Tensor::empty({}, Dtype::f64, x.device());
  const Tensor partial =
      Tensor::empty({(x.elements() + kNormBlock - 1) / kNormBlock}, Dtype::f64, x.device());
  l2_norm_slot(x.device(), {x.dtype(), x.elements(), x.raw_data(), partial.mutable_data<double>(),
                            norm.mutable_data<double>(), before.defined() ? before.data<double>() : nullptr});
  return norm;
}

void detail::adamw_step(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                        const std::vector<DecaySegment>& segments, const AdamConstants& options,
                        const AdamScalars& scalars, const Tensor& norm) {
  check_step(params, grads, m, v, options, norm);
  check_scalars(kAdamw, scalars, 1);
  check_clip(kAdamw, scalars, norm);
  check_segments(kAdamw, segments, params.elements());
  run_adam(params, grads, m, v, upload_records(params.device(), segments), options,
           upload_records(params.device(), &scalars, 1), norm);
}

void detail::adamw_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v,
                                  const Tensor& segments, const AdamConstants& options, const Tensor& scalars,
                                  const Tensor& norm) {
  check_step(params, grads, m, v, options, norm);
  check_decay_table(kAdamw, segments);
  check_scalars(kAdamw, scalars);
  if (segments.device() != params.device() || scalars.device() != params.device())
    fail<DeviceError>("{}: segments on {}, scalars on {} and params on {} (one device for all)", kAdamw,
                      to_string(segments.device()), to_string(scalars.device()), to_string(params.device()));
  run_adam(params, grads, m, v, segments, options, scalars, norm);
}

}  // namespace eddy
