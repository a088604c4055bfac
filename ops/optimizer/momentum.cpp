// Checks of the optimizers with one moment.
#include "ops/optimizer/momentum.h"

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/core/parameter_cache.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

void detail::momentum_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& m,
                                     const Tensor& segments, const MomentumConstants& options,
                                     const Tensor& scalars, const Tensor& norm) {
  constexpr const char* kOp = "momentum_step";
  check_arenas(kOp, params, {{grads, "grads"}, {m, "m"}}, norm);
  for (const double beta : {options.beta1, options.beta2})
    if (!(beta >= 0 && beta < 1))
      fail<ValueError>("{}: betas {} and {} (each 0 <= beta < 1)", kOp, options.beta1, options.beta2);
  check_decay_table(kOp, segments);
  check_scalars(kOp, scalars);
  if (segments.device() != params.device() || scalars.device() != params.device())
    fail<DeviceError>("{}: segments on {}, scalars on {} and params on {} (one device for all)", kOp,
                      to_string(segments.device()), to_string(scalars.device()), to_string(params.device()));
  void* const rounded = write_params(params, kOp);
  if (params.elements() == 0) return;
  momentum_slot(params.device(),
                {params.dtype(), params.elements(), params.raw_data(), grads.raw_data(), m.raw_data(),
                 static_cast<const DecaySegment*>(segments.raw_data()), record_count<DecaySegment>(segments),
                 options, static_cast<const AdamScalars*>(scalars.raw_data()),
                 norm.defined() ? norm.data<double>() : nullptr, rounded});
}

}  // namespace eddy
